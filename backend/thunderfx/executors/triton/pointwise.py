"""ATen's pointwise operators as expressions of Triton.

An expression's operands are in the dtype in which the operator computes: that of its result, with float32 in the place
of float16 and bfloat16; for comparisons that to which torch promotes the operands.
"""

from __future__ import annotations

_UNARY = {
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "1 / tl.sqrt({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "erf": "tl.erf({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "reciprocal": "1 / {0}",
    "sigmoid": "1 / (1 + tl.exp(-{0}))",
    "tanh": "1 - 2 / (tl.exp(2 * {0}) + 1)",  # exp overflows to inf for large arguments, which gives 1
    "relu": "tl.where({0} > 0, {0}, tl.where({0} == {0}, 0.0, {0}))",
    "square": "{0} * {0}",
    "sign": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0} * 0))",
    "sgn": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0} * 0))",
}
#: Near 0, where ``tanh`` above loses digits: the Taylor series to the fifth power, good to 1e-9 below 0.05.
TANH_BELOW_DOUBLE = (
    "tl.where(tl.abs({0}) < 0.05, {0} * (1 - {0} * {0} * (1 / 3 - {0} * {0} * (2 / 15))), " + _UNARY["tanh"] + ")"
)
_BINARY = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "maximum": "tl.where({0} != {0}, {0}, tl.where({0} > {1}, {0}, {1}))",
    "minimum": "tl.where({0} != {0}, {0}, tl.where({0} < {1}, {0}, {1}))",
}
#: Result is a boolean; operands are promoted as torch promotes them.
COMPARISONS = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
}
#: Booleans in, boolean out.
LOGICAL = {"logical_and": "{0} & {1}", "logical_or": "{0} | {1}", "logical_not": "{0} == 0"}
FLOAT_ONLY = frozenset("exp exp2 log log2 sqrt rsqrt sin cos erf floor ceil reciprocal sigmoid tanh sign sgn".split())
EXPRESSIONS = _UNARY | _BINARY


def integer_power(base: str, exponent: int) -> str:
    """``base ** exponent`` by multiplication, for small exponents."""
    if exponent < 0:
        return f"1 / ({integer_power(base, -exponent)})"
    return " * ".join([base] * exponent) if exponent else f"{base} * 0 + 1"
