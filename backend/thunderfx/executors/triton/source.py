"""Kernel plan -> Triton source.

A kernel has its columns in one block, or loops over them. In a loop, what depends on columns is computed again in each
loop that needs it, and what is left of a row is kept: a reduction accumulates blocks and combines them after the loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from thunderfx.executors.triton.plan import Compute, Kernel, Load, Reduce, Step, Store
from thunderfx.executors.triton.sizes import text_of

_TYPES = {
    "float64": "tl.float64",
    "float32": "tl.float32",
    "float16": "tl.float16",
    "bfloat16": "tl.bfloat16",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "int16": "tl.int16",
    "int8": "tl.int8",
    "uint8": "tl.uint8",
    "bool": "tl.int1",
}
#: What a value of a dtype is computed in.
COMPUTE = _TYPES | {"float16": "tl.float32", "bfloat16": "tl.float32"}
_VARIABLE = re.compile(r"\bv\d+\b")


def triton_type(dtype: str) -> str:
    """Raises ``KeyError`` for a dtype that Triton does not compute."""
    return COMPUTE[dtype]


def source_of(kernel: Kernel, is_looped: bool) -> str:
    """The kernel as a Triton function: pointers in the order of ``kernel.buffers``, ``kernel.symbols``, then ``WIDE``
    (64-bit positions) and ``ROWS`` and ``COLUMNS`` as block sizes."""
    constants = ["WIDE: tl.constexpr", "ROWS: tl.constexpr", *(["COLUMNS: tl.constexpr"] if kernel.has_columns else [])]
    parameters = [*(buffer.name for buffer in kernel.buffers), *kernel.symbols, *constants]
    rows, columns = text_of(kernel.rows), text_of(kernel.columns)
    out = ["block = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)"]
    if not kernel.has_columns:
        out += ["m = block * ROWS + tl.arange(0, ROWS)", f"in_rows = m < {rows}"]
        out += _all_lines(kernel, kernel.steps)
    else:
        out += ["m = block * ROWS + tl.arange(0, ROWS)[:, None]", f"in_rows = m < {rows}"]
        if is_looped:
            out += _looped(kernel, columns)
        else:
            out += [
                "n = tl.arange(0, COLUMNS)[None, :]",
                f"in_columns = n < {columns}",
                "inside = in_rows & in_columns",
            ]
            out += _all_lines(kernel, kernel.steps)
    return "\n".join([f"def {kernel.name}({', '.join(parameters)}):", *(f"    {line}" for line in out)]) + "\n"


def _all_lines(kernel: Kernel, steps: Iterable[Step]) -> list[str]:
    return [line for step in steps for line in _lines(kernel, step)]


def _needs(step: Step) -> set[str]:
    """Variables that a step reads."""
    match step:
        case Load(_, _, index, condition):
            text = f"{index} {condition}"
        case Compute(_, expression):
            text = expression
        case Reduce(_, _, operand):
            text = operand
        case Store(_, index, var):
            text = f"{index} {var}"
    return set(_VARIABLE.findall(text))


def _looped(kernel: Kernel, columns: str) -> list[str]:
    """Stage by stage: what of a row is known, then a loop over columns for the reductions and stores that need no later
    reduction."""
    maker = {step.var: at for at, step in enumerate(kernel.steps) if not isinstance(step, Store)}
    needs = [{maker[var] for var in _needs(step)} for step in kernel.steps]
    stage: list[int] = []  #: number of reductions, one after the other, before a step
    for at in range(len(kernel.steps)):
        stage.append(max((stage[b] + isinstance(kernel.steps[b], Reduce) for b in needs[at]), default=0))
    in_loop = [_is_of_columns(kernel, step) for step in kernel.steps]
    out: list[str] = []
    for level in range(max(stage, default=0) + 1):
        here = [at for at in range(len(kernel.steps)) if stage[at] == level]
        out += _all_lines(kernel, (kernel.steps[at] for at in here if not in_loop[at] and not _is_reduce(kernel, at)))
        reductions = [step for step in kernel.steps if isinstance(step, Reduce) and stage[maker[step.var]] == level]
        goals = [at for at in here if _is_reduce(kernel, at) or (in_loop[at] and isinstance(kernel.steps[at], Store))]
        if not goals:
            continue
        wanted: set[int] = set()
        todo = list(goals)
        while todo:
            at = todo.pop()
            if at not in wanted and (in_loop[at] or at in goals):
                wanted.add(at)
                todo += needs[at]
        for step in reductions:
            out.append(f"{step.var}_all = tl.full([ROWS, COLUMNS], {step.neutral}, {step.dtype})")
        out += [f"for first in range(0, {columns}, COLUMNS):", "    n = first + tl.arange(0, COLUMNS)[None, :]"]
        out += [f"    in_columns = n < {columns}", "    inside = in_rows & in_columns"]
        for at in sorted(wanted):
            one = kernel.steps[at]
            lines = _accumulated(one) if isinstance(one, Reduce) else _lines(kernel, one)
            out += [f"    {line}" for line in lines]
        for step in reductions:
            out += _combined(step, f"{step.var}_all")
    return out


def _is_of_columns(kernel: Kernel, step: Step) -> bool:
    if isinstance(step, Store):
        return not step.per_row
    return "n" in kernel.depends[step.var]


def _is_reduce(kernel: Kernel, at: int) -> bool:
    return isinstance(kernel.steps[at], Reduce)


def _accumulated(step: Reduce) -> list[str]:
    total, value = f"{step.var}_all", f"tl.where(inside, {step.operand}, {step.neutral})"
    if step.kind == "sum":
        return [f"{total} = {total} + {value}"]
    sign = ">" if step.kind == "max" else "<"
    newer = f"({value} {sign} {total})"
    if step.neutral.startswith("float"):  # nan stays, and comes in
        newer += f" | ({value} != {value})"
        return [f"{total} = tl.where({total} != {total}, {total}, tl.where({newer}, {value}, {total}))"]
    return [f"{total} = tl.where({newer}, {value}, {total})"]


def _combined(step: Reduce, kept: str) -> list[str]:
    found = [f"{step.var} = tl.{step.kind}({kept}, axis=1)[:, None]"]
    if step.kind != "sum" and step.neutral.startswith("float"):
        # as torch's, it gives nan where there is one; Triton's passes over it
        has_nan = f"tl.max((({kept}) != ({kept})).to(tl.int32), axis=1)[:, None] != 0"
        found.append(f"{step.var} = tl.where({has_nan}, float('nan'), {step.var})")
    return found


def _mask(atoms: set[str], has_columns: bool) -> str:
    """Which points of the iteration space an access that depends on these loop variables may touch."""
    if not has_columns or "n" not in atoms:
        return "in_rows"
    return "inside" if "m" in atoms else "in_columns"


def _lines(kernel: Kernel, step: Step) -> list[str]:
    match step:
        case Load(var, buffer, index, condition):
            atoms = index.atoms()
            if not atoms and not condition:
                loaded = f"tl.load({buffer.name} + ({index}))"
            else:  # a mask is a block, and so must be the place
                block = kernel.depends[var] | {"m"} if not atoms else kernel.depends[var]
                place = " + ".join([str(index), *(f"{name} * 0" for name in sorted(block - atoms))])
                mask = _mask(atoms, kernel.has_columns) + (f" & {condition}" if condition else "")
                loaded = f"tl.load({buffer.name} + ({place}), mask={mask}, other=0)"
            return [
                f"{var} = {loaded} != 0"
                if buffer.dtype == "bool"
                else f"{var} = {loaded}.to({triton_type(buffer.dtype)})"
            ]
        case Compute(var, expression):
            return [f"{var} = {expression}"]
        case Reduce():
            return _combined(step, f"tl.where(inside, {step.operand}, {step.neutral})")
        case Store(buffer, index, var, per_row):
            flat = per_row or not kernel.has_columns
            parts = [str(index)]  # of the block's shape, also where a side of length 1 has no variable
            parts += ["m * 0"] if "m" not in index.atoms() else []
            parts += ["n * 0"] if not flat and "n" not in index.atoms() else []
            return [f"tl.store({buffer.name} + ({' + '.join(parts)}), {var}, mask={'in_rows' if flat else 'inside'})"]
