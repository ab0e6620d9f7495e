"""Pointwise operators of the graph as Triton's text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from thunderfx.executors.triton.index import Index
from thunderfx.executors.triton.nodes import Node, Unsupported, args_of, argument, dtype, value_of
from thunderfx.executors.triton.pointwise import (
    BITWISE,
    COMPARISONS,
    EXPRESSIONS,
    FLOAT_ONLY,
    LOGICAL,
    ROUNDED,
    TANH_BELOW_DOUBLE,
    integer_power,
)
from thunderfx.executors.triton.sizes import size_of
from thunderfx.executors.triton.source import triton_type

if TYPE_CHECKING:
    from thunderfx.executors.triton.builder import Builder

_FILLED = {
    "full": 1,
    "full_like": 1,
    "new_full": 2,
    "scalar_tensor": 0,
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), 0.0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1.0),
}
_SAME = frozenset("detach clone _to_copy convert_element_type contiguous alias lift_fresh_copy lift_fresh".split())
_POWERS = (0.5, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, -0.5)
#: Operators that ``expression`` has a case for.
OTHERS = (
    frozenset(_FILLED)
    | _SAME
    | frozenset("iota arange where pow clamp clamp_min clamp_max div true_divide floor_divide fma round".split())
    | frozenset("addcmul addcdiv copy".split())
)


def expression(builder: Builder, node: Node, name: str, coordinates: tuple[Index, ...]) -> str:
    """The text that computes ``node`` from its operands at ``coordinates``. Raises :class:`Unsupported`."""
    wanted = dtype(node)
    args = args_of(node)

    def operands(count: int, of: str = wanted) -> list[str]:
        return [builder.operand(arg, coordinates, of) for arg in args[:count]]

    if name in _FILLED:
        where: Any = _FILLED[name]
        filled = where if isinstance(where, float) else args[where]
        sides = 2 if builder.kernel.has_columns else 1
        return f"tl.full([1] * {sides}, {scalar(builder, filled, wanted)}, {triton_type(wanted)})"
    if name in ("iota", "arange"):
        return _counted(builder, node, name, coordinates)
    if name in _SAME:
        return cast(builder.evaluate(args[0], coordinates), dtype(args[0]), wanted)
    if name == "copy":
        return builder.operand(args[1], coordinates, wanted)
    if name in COMPARISONS:
        types = [value_of(arg) if isinstance(arg, Node) and _is_tensor(arg) else _number(arg) for arg in args[:2]]
        promoted = str(torch.result_type(*types) if len(types) > 1 else value_of(args[0]).dtype).removeprefix("torch.")
        return COMPARISONS[name].format(*operands(2, promoted))
    if name in LOGICAL:
        return LOGICAL[name].format(*operands(2, "bool"))
    if name == "where":
        condition = builder.operand(args[0], coordinates, "bool")
        return f"tl.where({condition}, {', '.join(builder.operand(arg, coordinates, wanted) for arg in args[1:])})"
    if name == "pow" and isinstance(args[1], (int, float)) and float(args[1]) in _POWERS:
        return _power(operands(1)[0], float(args[1]))
    if name in ("clamp", "clamp_min", "clamp_max"):
        return _clamped(builder, node, name, coordinates)
    if name in ("div", "true_divide", "floor_divide"):
        return _divided(node, name, *operands(2))
    if name in BITWISE:
        parts = operands(2)
        return f"{parts[0]} == 0" if (wanted, name) == ("bool", "bitwise_not") else BITWISE[name].format(*parts)
    if name == "fma":
        return "{} * {} + {}".format(*operands(3))
    if name in ("addcmul", "addcdiv"):
        factor = scalar(builder, argument(node, 3, "value", 1), wanted)
        sign = "*" if name == "addcmul" else "/"
        return f"{{}} + {factor} * ({{}} {sign} {{}})".format(*operands(3))
    if name == "round" and len(args) == 1 and value_of(node).is_floating_point():
        return _rounded(*operands(1))
    return _plain(builder, node, name, operands)


def _plain(builder: Builder, node: Node, name: str, operands: Any) -> str:
    wanted, is_float = dtype(node), value_of(node).is_floating_point()
    if name not in EXPRESSIONS:
        raise Unsupported(f"no kernel is generated for {node.target}")
    if not is_float and name in FLOAT_ONLY and name != "relu":
        raise Unsupported(f"{node.target} of {wanted}")
    if name in ("add", "sub") and wanted == "bool":
        raise Unsupported(f"{node.target} of bool")
    parts = operands(2)
    alpha = node.kwargs.get("alpha", 1)
    if name in ("add", "sub") and alpha != 1:
        parts[1] = f"({parts[1]} * {scalar(builder, alpha, wanted)})"
    if name == "mul" and wanted == "bool":
        return f"{parts[0]} & {parts[1]}"
    if name == "relu" and not is_float:
        return f"tl.where({parts[0]} > 0, {parts[0]}, 0)"
    if name == "tanh" and wanted != "float64":
        return TANH_BELOW_DOUBLE.format(*parts)
    return EXPRESSIONS[name].format(*parts)


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)


def _number(arg: Any) -> Any:
    """A number of the kind of ``arg``, for promotion."""
    if isinstance(arg, Node):
        arg = arg.meta.get("val")
    if isinstance(arg, torch.SymInt):
        return 1
    if isinstance(arg, (bool, int, float)):
        return arg
    raise Unsupported(f"the argument {arg!r}")


def _counted(builder: Builder, node: Node, name: str, coordinates: tuple[Index, ...]) -> str:
    start, step = node.kwargs.get("start", 0), node.kwargs.get("step", 1)
    if name == "arange":
        start, step = 0, 1
        if not str(node.target).endswith("default"):
            raise Unsupported(str(node.target))
    kind = triton_type(dtype(node))
    return f"{builder.index_value(coordinates[0])}.to({kind}) * {step} + {start}"


def _power(base: str, exponent: float) -> str:
    if abs(exponent) == 0.5:
        return f"tl.sqrt({base})" if exponent > 0 else f"1 / tl.sqrt({base})"
    return integer_power(base, int(exponent))


def _rounded(value: str) -> str:
    """To the nearest integer, to the even one between two; large numbers are integers already."""
    near = f"tl.floor({value} + 0.5)"
    tie = f"({near} - {value} == 0.5) & (tl.floor({near} * 0.5) * 2 != {near})"
    return f"tl.where(tl.abs({value}) < 4194304, tl.where({tie}, {near} - 1, {near}), {value})"


def _divided(node: Node, name: str, a: str, b: str) -> str:
    mode: Any = "floor" if name == "floor_divide" else node.kwargs.get("rounding_mode")
    is_float = value_of(node).is_floating_point()
    if mode is not None:
        return ROUNDED[mode, is_float].format(a, b)
    if not is_float:
        raise Unsupported(f"{node.target} of {dtype(node)}")
    return f"{a} / {b}"


def _clamped(builder: Builder, node: Node, name: str, coordinates: tuple[Index, ...]) -> str:
    wanted = dtype(node)
    value = builder.operand(args_of(node)[0], coordinates, wanted)
    if name == "clamp":
        least, most = argument(node, 1, "min"), argument(node, 2, "max")
    else:
        bound = args_of(node)[1]
        least, most = (bound, None) if name == "clamp_min" else (None, bound)
    out = value
    for bound, sign in ((least, "<"), (most, ">")):
        if bound is not None:
            limit = builder.operand(bound, coordinates, wanted)
            out = f"tl.where({out} {sign} {limit}, {limit}, {out})"
    return out


def cast(var: str, given: str, wanted: str) -> str:
    if triton_type(given) == triton_type(wanted):
        return var
    return f"{var} != 0" if wanted == "bool" else f"{var}.to({triton_type(wanted)})"


def scalar(builder: Builder, value: Any, wanted: str) -> str:
    """A number as a constant of a dtype; a symbolic one as an argument of the kernel."""
    if isinstance(value, Node):
        value = value.meta.get("val")
    if isinstance(value, torch.SymInt):
        size = size_of(value)
        if not isinstance(size, int):
            return builder.cast(builder.size_value(size), "int32", wanted)
        value = size
    if not isinstance(value, (bool, int, float)):
        raise Unsupported(f"the argument {value!r}")
    if wanted == "bool":
        return "True" if value else "False"
    if wanted.startswith(("float", "bfloat")):
        number = float(value)
        text = repr(number) if math.isfinite(number) else f"float('{number}')"
        return f"({text})" if number < 0 else text
    return str(int(value)) if value >= 0 else f"({int(value)})"
