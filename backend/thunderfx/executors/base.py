"""What an executor is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thunderfx.trace import BoundSymbol, TraceCtx


class Executor:
    """Runs lines of a trace. ``name`` is what users write and traces show.

    Subclass :class:`OperatorExecutor` or :class:`FusionExecutor`. See docs/executors.md.
    """

    name: str = ""

    def decompositions(self) -> Mapping[Any, Callable[..., Any]]:
        """Operators that AOTAutograd is to decompose before differentiation, in the form of torch's tables."""
        return {}

    def rewrite(self, trace: TraceCtx) -> TraceCtx:
        """The torch-level trace with calls that this executor wants to run as they are, before differentiation.

        What it puts in their place is an operator registered with ``torch.library``, which brings its own backward, so
        that AOTAutograd keeps it as one line in each direction.
        """
        return trace

    def __repr__(self) -> str:
        return f"<executor {self.name}>"


class OperatorExecutor(Executor):
    """Runs single lines."""

    def can_execute(self, line: BoundSymbol) -> bool:
        """Whether this executor runs ``line``."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it can execute")

    def implementation(self, line: BoundSymbol) -> Callable[..., Any] | None:
        """What is called with the line's arguments in place of its operator; ``None`` for the operator itself."""
        return None

    def tags(self, line: BoundSymbol) -> tuple[str, ...]:
        """What a reader should know about how it runs ``line``; shown behind the line."""
        return ()


@dataclasses.dataclass(frozen=True)
class Region:
    """Lines that are to run in one call: a trace of its own.

    ``examples`` are the inputs' fake tensors and symbolic numbers. ``direction`` is ``"forward"`` or ``"backward"``;
    ``differentiated`` is false where there will be no backward. ``is_whole``: the region is all of its direction.
    ``visible`` are the positions of outputs whose strides must be those that their types say.
    """

    trace: TraceCtx
    examples: tuple[Any, ...]
    direction: str
    differentiated: bool
    is_whole: bool
    visible: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A compiled region: ``run`` takes a list of the inputs, which it may clear, and returns the outputs in order.

    ``source`` is the generated code, for reading; ``statistics`` figures about it, such as its number of kernels.
    """

    run: Callable[[list[Any]], Sequence[Any]]
    source: str = ""
    statistics: Mapping[str, int | float | str] = dataclasses.field(default_factory=dict)


class FusionExecutor(Executor):
    """Runs regions of lines.

    ``min_lines`` is the least number of lines, views not counted, that make a region worth a call.
    ``takes_whole``: where it stands first and can run every line, it is given each direction whole, with the lines
    that change memory or draw random numbers, which are never part of a smaller region.
    """

    min_lines: int = 2
    takes_whole: bool = False

    def can_fuse(self, line: BoundSymbol) -> bool | str:
        """Whether ``line`` may be part of a region; a text says why not."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it can fuse")

    def compile(self, region: Region) -> Fusion:
        """Compile a region; where this raises, its lines run one by one and the run says why."""
        raise NotImplementedError(f"{type(self).__name__} does not compile")
