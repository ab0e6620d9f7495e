"""What is saved for backward, and what checkpointing would save, on hand-made traces."""

from __future__ import annotations

from thunderfx.profiling.allocations.model import Checkpoint
from thunderfx.profiling.allocations.recorder import Program
from thunderfx.profiling.allocations.saved import ESTIMATED, MEASURED, Pair, saved_for_backward
from thunderfx.trace import BoundSymbol, ListArg, Origin, Ref, TensorType, TraceCtx, Variable

ORIGINS = tuple(Origin(module, "f", "/m.py", i, "") for i, module in enumerate(("blocks.0", "blocks.1", "head")))


def variable(name: str, size: int | str = 100, source: str = "") -> Variable:
    return Variable(name, TensorType("float32", (size,)), source)


def line(output: str, origin: int, *uses: str, size: int | str = 100, tags: tuple[str, ...] = ()) -> BoundSymbol:
    args = tuple(map(Ref, uses))
    return BoundSymbol("aten.sin.default", args, outputs=(variable(output, size),), origin=origin, tags=tags)


def pair(*, size: int | str = 100, measured: dict[str, tuple[int, int]] | None = None) -> Pair:
    """Two blocks and a head. Each block makes a large ``a`` and hands a small ``h`` on; all of it is saved."""
    forward = TraceCtx(
        "forward",
        (variable("x", source="x"),),
        (
            line("a0", 0, "x", size=size),
            line("h0", 0, "a0", size=10),
            line("a1", 1, "h0", size=size),
            line("v1", 1, "a1", size=size, tags=("view",)),
            line("h1", 1, "v1", size=10),
            line("out", 2, "h1"),
        ),
        ListArg(tuple(map(Ref, ("out", "x", "a0", "h0", "a1", "v1", "h1")))),
        ORIGINS,
    )
    saved = ("x", "a0", "h0", "a1", "v1", "h1")
    backward = TraceCtx(
        "backward",
        (*(variable(name) for name in saved), variable("tangents_1", source="gradient of an output")),
        (
            line("g2", 2, "tangents_1", "h1"),
            line("g1", 1, "g2", "v1", "a1", "h0"),
            line("g0", 0, "g1", "a0", "x"),
        ),
        ListArg((Ref("g0"),)),
        ORIGINS,
    )
    return Pair(Program(0, "forward", forward), Program(0, "backward", backward), measured)


def test_each_storage_once_and_inputs_never():
    saved = saved_for_backward([pair()])
    assert [(item.name, item.bytes) for item in saved.tensors] == [("a0", 400), ("a1", 400), ("h0", 40), ("h1", 40)]
    assert (saved.bytes, saved.count, saved.source) == (880, 4, ESTIMATED)
    assert saved.tensors[0].place.module == "blocks.0"


def test_checkpointed_modules_keep_what_others_need():
    saved = saved_for_backward([pair()])
    # h0 and h1 are read by the backward of the module after: they stay
    assert saved.checkpoints[0] == Checkpoint("blocks", 1, 880, 840)
    assert saved.checkpoints[1] == Checkpoint("blocks.*", 2, 880, 800)


def test_containers_cannot_be_checkpointed():
    saved = saved_for_backward([pair()], frozenset({"blocks"}))
    assert [item.module for item in saved.checkpoints] == ["blocks.*"]


def test_measured_storages_count_by_address():
    sizes = {"a0": (1, 512), "h0": (2, 48), "a1": (1, 512), "v1": (1, 512), "h1": (3, 48)}
    saved = saved_for_backward([pair(measured=sizes)])
    assert (saved.bytes, saved.count, saved.source) == (512 + 48 + 48, 3, MEASURED)


def test_symbolic_sizes_are_counted_as_unknown():
    saved = saved_for_backward([pair(size="s0")])
    assert (saved.bytes, saved.unknown) == (80, 3)


def test_a_module_that_takes_in_more_than_it_saves_is_not_offered():
    base = pair()
    lines = (line("big", 2, "x", size=1000), line("a0", 0, "big", size=10), line("out", 2, "a0"))
    forward = base.forward.trace.replace(bound_symbols=lines, outputs=ListArg((Ref("out"), Ref("a0"))))
    backward = base.backward.trace.replace(
        inputs=(variable("a0"), variable("tangents_1", source="gradient of an output")),
        bound_symbols=(line("g0", 0, "tangents_1", "a0"),),
    )
    saved = saved_for_backward([Pair(Program(0, "forward", forward), Program(0, "backward", backward))])
    assert saved.bytes == 40
    assert saved.checkpoints == ()
