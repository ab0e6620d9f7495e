"""Kernel plan -> Triton source."""

from __future__ import annotations

from thunderfx.executors.triton.plan import Compute, Kernel, Load, Reduce, Store

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


def triton_type(dtype: str) -> str:
    """Raises ``KeyError`` for a dtype that Triton does not compute."""
    return COMPUTE[dtype]


def source_of(kernel: Kernel) -> str:
    """The kernel as a Triton function: pointers in the order of ``kernel.buffers``, then ``ROWS`` and ``COLUMNS`` as
    block sizes."""
    pointers = [f"{buffer.name}" for buffer in kernel.buffers]
    has_columns = kernel.columns > 1
    blocks = ["ROWS: tl.constexpr"] + (["COLUMNS: tl.constexpr"] if has_columns else [])
    out = [f"def {kernel.name}({', '.join(pointers + blocks)}):"]
    if has_columns:
        out += [
            "m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]",
            "n = tl.arange(0, COLUMNS)[None, :]",
            f"in_rows = m < {kernel.rows}",
            f"in_columns = n < {kernel.columns}",
            "inside = in_rows & in_columns",
        ]
    else:
        out += ["m = tl.program_id(0) * ROWS + tl.arange(0, ROWS)", f"in_rows = m < {kernel.rows}"]
    for step in kernel.steps:
        out += _lines(step, has_columns)
    return "\n".join([out[0], *(f"    {line}" for line in out[1:])]) + "\n"


def _mask(atoms: set[str], has_columns: bool) -> str:
    """Which points of the iteration space an access that depends on these loop variables may touch."""
    if not has_columns or "n" not in atoms:
        return "in_rows"
    return "inside" if "m" in atoms else "in_columns"


def _lines(step: Load | Compute | Reduce | Store, has_columns: bool) -> list[str]:
    match step:
        case Load(var, buffer, index, condition):
            mask = _mask(index.atoms(), has_columns)
            if condition:
                mask = f"{mask} & {condition}"
            place = str(index) if index.atoms() else f"{index} + m * 0"  # a mask is a block, and so must be the place
            loaded = f"tl.load({buffer.name} + ({place}), mask={mask}, other=0)"
            if not index.atoms() and not condition:
                loaded = f"tl.load({buffer.name} + ({index}))"
            if buffer.dtype == "bool":
                return [f"{var} = {loaded} != 0"]
            return [f"{var} = {loaded}.to({triton_type(buffer.dtype)})"]
        case Compute(var, expression):
            return [f"{var} = {expression}"]
        case Reduce(var, kind, operand, neutral):
            kept = f"tl.where(inside, {operand}, {neutral})"
            found = [f"{var} = tl.{kind}({kept}, axis=1)[:, None]"]
            if kind != "sum":  # as torch's, it gives nan where there is one; Triton's passes over it
                has_nan = f"tl.max((({kept}) != ({kept})).to(tl.int32), axis=1)[:, None] != 0"
                found.append(f"{var} = tl.where({has_nan}, float('nan'), {var})")
            return found
        case Store(buffer, index, var, per_row):
            flat = per_row or not has_columns
            parts = [str(index)]  # of the block's shape, also where a side of length 1 has no variable
            parts += ["m * 0"] if "m" not in index.atoms() else []
            parts += ["n * 0"] if not flat and "n" not in index.atoms() else []
            return [f"tl.store({buffer.name} + ({' + '.join(parts)}), {var}, mask={'in_rows' if flat else 'inside'})"]
