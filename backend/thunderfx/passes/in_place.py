"""Pointwise operators that write their result over an operand that nobody needs any more.

Saves an allocation and touches less memory: about a third of the time of a small pointwise operator on the host.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thunderfx.passes.effects import families
from thunderfx.trace import BoundSymbol, Ref, TensorType, TraceCtx, Variable
from thunderfx.trace.printer import returned_names

#: Operators of which the first operand may take the result, with the operator that does so.
_UNARY = "abs ceil cos erf exp floor hardtanh leaky_relu log neg reciprocal relu round rsqrt sigmoid silu sin sqrt tanh"
_IN_PLACE = {
    **{f"aten.{name}.default": f"aten.{name}_.default" for name in _UNARY.split()},
    **{f"aten.{name}.Tensor": f"aten.{name}_.Tensor" for name in ("add", "sub", "mul", "div")},
    "aten.mul.Scalar": "aten.mul_.Scalar",
    "aten.div.Scalar": "aten.div_.Scalar",
    "aten.add.Scalar": "aten.add_.Scalar",
    "aten.sub.Scalar": "aten.sub_.Scalar",
    "aten.pow.Tensor_Scalar": "aten.pow_.Scalar",
    "aten.clamp.default": "aten.clamp_.default",
    "aten.clamp_min.default": "aten.clamp_min_.default",
    "aten.masked_fill.Scalar": "aten.masked_fill_.Scalar",
}
_SWAPPABLE = frozenset({"aten.add.Tensor", "aten.mul.Tensor"})
#: Backward formulas, which have no in-place form but may be given the memory of the incoming gradient.
_INTO_GRADIENT = {
    f"aten.{name}.default": f"aten.{name}.grad_input"
    for name in ("threshold_backward", "tanh_backward", "sigmoid_backward", "gelu_backward", "silu_backward")
}
#: Operators whose results are always memory of their own (``native_dropout``, for one, may return its operand).
_FRESH = (
    frozenset(_IN_PLACE)
    | frozenset(_INTO_GRADIENT)
    | frozenset(
        f"aten.{name}"
        for name in (
            "mm.default addmm.default bmm.default baddbmm.default convolution.default convolution_backward.default "
            "native_layer_norm.default native_layer_norm_backward.default native_batch_norm_backward.default "
            "_native_batch_norm_legit_functional.default _native_batch_norm_legit.default cat.default "
            "embedding.default gelu.default mean.dim sum.dim_IntList where.self _softmax.default "
            "_softmax_backward_data.default _log_softmax.default _log_softmax_backward_data.default"
        ).split()
    )
)
_NORM = "aten._native_batch_norm_legit_functional.default"
_NORM_IN_PLACE = "aten._native_batch_norm_legit.default"
_COPY = "aten.copy_.default"


def work_in_place(trace: TraceCtx) -> TraceCtx:
    """Use in-place forms where liveness proves that nobody can tell.

    A line may overwrite an operand that a line of this trace made, that no later line and no return reads, neither
    itself nor through a view, and that has the result's type: dtype, shape and strides. An input that is overwritten
    at the end (``copy_``) with what was computed from it is changed where that is computed, if nobody reads the old
    value in between.
    """
    trace = _write_back_early(trace)
    lines = trace.bound_symbols
    last_use = {name: number for number, line in enumerate(lines) for name in line.uses()}
    last_use |= dict.fromkeys(returned_names(trace), len(lines))
    fresh: dict[str, Variable] = {}
    shared = families(trace)
    changed = list(lines)
    for number, line in enumerate(lines):
        replacement = None
        for position in _positions(line):
            operand = line.args[position]
            var = fresh.get(operand.name) if isinstance(operand, Ref) else None
            if var is None or not _same_memory_layout(var, line.outputs[0]):
                continue
            if any(last_use.get(name, -1) > number for name in shared.get(var.name, {var.name})):
                continue
            if any(name != var.name and name in shared.get(var.name, ()) for name in line.uses()):
                continue
            replacement = _in_place(line, position)
            break
        if replacement is not None:
            changed[number] = replacement
        if line.symbol in _FRESH:
            fresh |= {var.name: var for var in line.defines()}
    return trace if changed == list(lines) else trace.replace(bound_symbols=tuple(changed))


def _positions(line: BoundSymbol) -> Iterator[int]:
    """Positions of operands that the line's operator can overwrite."""
    if len(line.outputs) != 1 or line.unpack:
        return
    if line.symbol in _IN_PLACE or line.symbol in _INTO_GRADIENT:
        yield 0
    if line.symbol in _SWAPPABLE and not line.kwargs and len(line.args) == 2:
        yield 1


def _in_place(line: BoundSymbol, position: int) -> BoundSymbol:
    tags = (*line.tags, "mutation")
    if line.symbol in _INTO_GRADIENT:
        kwargs = (*line.kwargs, ("grad_input", line.args[0]))
        return msgspec.structs.replace(line, symbol=_INTO_GRADIENT[line.symbol], kwargs=kwargs, tags=tags)
    args = line.args if position == 0 else (line.args[1], line.args[0])
    return msgspec.structs.replace(line, symbol=_IN_PLACE[line.symbol], args=args, tags=tags)


def _same_memory_layout(operand: Variable, result: Variable | None) -> bool:
    return (
        result is not None
        and isinstance(result.type, TensorType)
        and isinstance(operand.type, TensorType)
        and result.type.layout == "strided"
        and msgspec.structs.replace(operand.type, requires_grad=False)
        == msgspec.structs.replace(result.type, requires_grad=False)
    )


def _write_back_early(trace: TraceCtx) -> TraceCtx:
    """Change inputs where their new value is computed, where that is all that the final ``copy_`` was for."""
    lines: list[BoundSymbol | None] = list(trace.bound_symbols)
    inputs = {var.name: var for var in trace.inputs}
    returned = returned_names(trace)
    uses: dict[str, list[int]] = {}
    for number, line in enumerate(trace.bound_symbols):
        for name in line.uses():
            uses.setdefault(name, []).append(number)
    shared = families(trace)

    def written_back(value: Variable | None, target: object, made: int) -> int | None:
        """The line that copies ``value`` to the input ``target`` and can be left out, if the input is changed early."""
        if value is None or not isinstance(target, Ref) or target.name not in inputs or target.name in shared:
            return None
        if value.name in shared or value.name in returned or not _same_memory_layout(inputs[target.name], value):
            return None
        later = [number for number in uses.get(target.name, ()) if number > made]
        copy = trace.bound_symbols[later[0]] if len(later) == 1 else None
        if copy is None or copy.symbol != _COPY or copy.args != (target, Ref(value.name)):
            return None
        unused = not any(var.name in uses or var.name in returned for var in copy.defines())
        return later[0] if unused else None

    for made, line in enumerate(trace.bound_symbols):
        for position in _positions(line) if line.symbol in _IN_PLACE else ():
            copied = written_back(line.outputs[0], line.args[position], made)
            if copied is not None and lines[made] is line:
                lines[made], lines[copied] = _in_place(line, position), None
        if line.symbol == _NORM and len(line.outputs) == 5:
            copies = [written_back(line.outputs[i], line.args[i], made) for i in (3, 4)]
            means = [out.name for out in line.outputs[3:] if out is not None]
            if None not in copies and all(len(uses.get(name, ())) == 1 for name in means):
                for copied in copies:
                    lines[copied] = None  # type: ignore[index]
                tags = (*line.tags, "mutation")
                lines[made] = msgspec.structs.replace(line, symbol=_NORM_IN_PLACE, outputs=line.outputs[:3], tags=tags)
    kept = tuple(line for line in lines if line is not None)
    return trace if len(kept) == len(lines) else trace.replace(bound_symbols=kept)
