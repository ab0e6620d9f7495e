"""ATen's pointwise operators as expressions of Triton.

An expression's operands are in the dtype in which the operator computes: that of its result, with float32 in the place
of float16 and bfloat16; for comparisons that to which torch promotes the operands. Only what Triton's language has
itself is used, not libdevice, so that the interpreter runs the same expression.
"""

from __future__ import annotations

_TANH = "1 - 2 / (tl.exp(2 * {0}) + 1)"  # exp overflows to inf for large arguments, which gives 1
_TRUNC = "tl.where({0} < 0, tl.ceil({0}), tl.floor({0}))"
_SIGN = "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0} * 0))"
_FLOAT_UNARY = {
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "log10": "tl.log({0}) * 0.4342944819032518",
    # Kahan's: the error of 1 + x cancels in the quotient (What Every Computer Scientist Should Know, theorem 4).
    "log1p": "tl.where(1 + {0} == 1, {0}, tl.where({0} == float('inf'), {0}, tl.log(1 + {0}) * {0} / ((1 + {0}) - 1)))",
    "expm1": "tl.where(tl.exp({0}) == 1, {0}, tl.where(tl.exp({0}) - 1 == -1, -1.0, "
    "tl.where({0} > 80, tl.exp({0}) - 1, (tl.exp({0}) - 1) * {0} / tl.log(tl.exp({0})))))",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "1 / tl.sqrt({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
    "tan": "tl.sin({0}) / tl.cos({0})",
    "erf": "tl.erf({0})",
    "floor": "tl.floor({0})",
    "ceil": "tl.ceil({0})",
    "trunc": _TRUNC,
    "frac": "{0} - " + _TRUNC,
    "reciprocal": "1 / {0}",
    "sigmoid": "1 / (1 + tl.exp(-{0}))",
    "tanh": _TANH,
    "relu": "tl.where({0} > 0, {0}, tl.where({0} == {0}, 0.0, {0}))",
    "sign": _SIGN,
    "sgn": _SIGN,
}
_UNARY = {"neg": "-{0}", "abs": "tl.abs({0})", "square": "{0} * {0}"}
#: Near 0, where ``tanh`` above loses digits: the Taylor series to the fifth power, good to 1e-9 below 0.05.
TANH_BELOW_DOUBLE = (
    "tl.where(tl.abs({0}) < 0.05, {0} * (1 - {0} * {0} * (1 / 3 - {0} * {0} * (2 / 15))), " + _TANH + ")"
)
_BINARY = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "maximum": "tl.where({0} != {0}, {0}, tl.where({0} > {1}, {0}, {1}))",
    "minimum": "tl.where({0} != {0}, {0}, tl.where({0} < {1}, {0}, {1}))",
    "fmod": "{0} % {1}",
    "remainder": "tl.where(({0} % {1} != 0) & (({1} < 0) != ({0} % {1} < 0)), {0} % {1} + {1}, {0} % {1})",
}
#: Result is a boolean; operands are promoted as torch promotes them.
COMPARISONS = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "isnan": "{0} != {0}",
    "isinf": "({0} == float('inf')) | ({0} == float('-inf'))",
}
#: Booleans in, boolean out.
LOGICAL = {
    "logical_and": "{0} & {1}",
    "logical_or": "{0} | {1}",
    "logical_xor": "{0} != {1}",
    "logical_not": "{0} == 0",
}
#: Integers and booleans.
BITWISE = {
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}",
    "bitwise_left_shift": "{0} << {1}",
    "bitwise_right_shift": "{0} >> {1}",
}
FLOAT_ONLY = frozenset(_FLOAT_UNARY)
EXPRESSIONS = _FLOAT_UNARY | _UNARY | _BINARY
#: Division that rounds, of floating-point numbers and of integers; as ``div_floor`` and ``div_trunc`` of
#: aten/src/ATen/native/BinaryOps.h, where the remainder decides.
ROUNDED = {
    ("trunc", True): _TRUNC.replace("{0}", "({0} / {1})"),
    ("floor", True): "tl.floor(({0} - {0} % {1}) / {1} - "
    "tl.where(({0} % {1} != 0) & (({1} < 0) != ({0} % {1} < 0)), 1.0, 0.0) + 0.5)",
    ("trunc", False): "{0} // {1}",
    ("floor", False): "{0} // {1} - tl.where(({0} % {1} != 0) & (({0} < 0) != ({1} < 0)), 1, 0)",
}


def integer_power(base: str, exponent: int) -> str:
    """``base ** exponent`` by multiplication, for small exponents."""
    if exponent < 0:
        return f"1 / ({integer_power(base, -exponent)})"
    return " * ".join([base] * exponent) if exponent else f"{base} * 0 + 1"
