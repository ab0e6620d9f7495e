"""Traces as Python source.

The bare form is the program that runs; the commented form differs from it in comments only. Printing is
deterministic: equal traces give equal text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from thunderfx.trace.bound_symbol import DEL, BoundSymbol, names_in
from thunderfx.trace.trace import TraceCtx
from thunderfx.trace.types import ValueType
from thunderfx.trace.values import Arg, Body, DictArg, ListArg, Literal, Ref, SliceArg, TupleArg, Variable

INDENT = "  "
Notes = Mapping[tuple[int, int | None], str]
"""Text by the number of a line, and the position of a member in it or ``None`` for the line itself."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def one_line(text: str) -> str:
    """``text`` made safe for a comment: control, line-breaking and direction-changing characters escaped."""
    if text.isprintable():  # none of them is; a trace of many lines is mostly such text
        return text
    return _CONTROL.sub(lambda m: m.group().encode("unicode_escape").decode("ascii"), text)


def print_arg(arg: Arg) -> str:
    """One argument as a Python expression."""
    if isinstance(arg, Ref):
        return arg.name
    if arg is None or isinstance(arg, (bool, int, str)):
        return repr(arg)
    if isinstance(arg, float):
        return repr(arg) if arg == arg and abs(arg) != float("inf") else f"float({str(arg)!r})"
    if isinstance(arg, ListArg):
        return f"[{', '.join(map(print_arg, arg.items))}]"
    if isinstance(arg, TupleArg):
        comma = "," if len(arg.items) == 1 else ""
        return f"({', '.join(map(print_arg, arg.items))}{comma})"
    if isinstance(arg, DictArg):
        return "{" + ", ".join(f"{print_arg(k)}: {print_arg(v)}" for k, v in arg.items) + "}"
    if isinstance(arg, SliceArg):
        return f"slice({print_arg(arg.start)}, {print_arg(arg.stop)}, {print_arg(arg.step)})"
    if isinstance(arg, Body):
        return arg.trace.name
    return _print_literal(arg)


def _print_literal(arg: Literal) -> str:
    if arg.kind == "device":
        return f"torch.device({arg.text!r})"
    if arg.kind == "float":
        return f"float({arg.text!r})"
    if arg.kind == "complex":
        return f"complex({arg.text!r})"
    if arg.kind == "int":
        return str(int(arg.text))
    if arg.kind == "op" and all(part.isidentifier() for part in arg.text.split(".")):
        return arg.text
    if arg.kind == "ellipsis":
        return "..."
    if not arg.text.isidentifier():
        raise ValueError(f"{arg.text!r} is not the name of a torch {arg.kind}")
    return f"torch.{arg.text}"


def print_call(line: BoundSymbol) -> str:
    """The right-hand side of one line; operators of torch at torch level keep their dotted name."""
    if line.symbol == DEL:
        return f"del {', '.join(line.uses())}"
    parts = [arg.name if type(arg) is Ref else print_arg(arg) for arg in line.args]
    parts += [f"{key}={print_arg(value)}" for key, value in line.kwargs]
    return f"{line.symbol}({', '.join(parts)})"


def print_line(line: BoundSymbol) -> str:
    """One line without comment."""
    call = print_call(line)
    outputs = line.outputs
    if line.unpack:
        names = [out.name if out is not None else "_" for out in outputs]
        return f"({', '.join(names)}{',' if len(names) == 1 else ''}) = {call}"
    if outputs and outputs[0] is not None:
        return f"{outputs[0].name} = {call}"
    return call


def _typed(var: Variable) -> str:
    return f'{var.name}: "{_type_text(var.type)}"'


@functools.lru_cache(maxsize=4096)
def _type_text(value_type: ValueType) -> str:
    return one_line(str(value_type))


def line_comment(line: BoundSymbol) -> str:
    """Types of what the line defines, then its executor where it is not torch, then its tags."""
    parts = [_typed(var) for var in line.outputs if var is not None]
    foreign = line.executor != "torch" and line.symbol != DEL
    if foreign or line.tags:
        notes = ([line.executor] if foreign else []) + list(line.tags)
        parts.append(f"[{', '.join(map(one_line, notes))}]")
    return ", ".join(parts)


def _print_signature(trace: TraceCtx, pad: str, comments: bool, nested: bool) -> list[str]:
    names = [var.name for var in trace.inputs]
    if nested:
        out = [f"{pad}def {trace.name}({', '.join(names)}):"]
    else:
        out = [f"{pad}def {trace.name}(args):"]
        if names:
            out.append(f"{pad}{INDENT}{', '.join(names)}{',' if len(names) == 1 else ''} = args")
            out.append(f"{pad}{INDENT}args.clear()")
    if comments:
        for var in trace.inputs:
            source = f"  {one_line(var.source)}" if var.source else ""
            out.append(f"{pad}{INDENT}# {_typed(var)}{source}")
    return out


def _print_function(
    trace: TraceCtx,
    pad: str,
    called: set[str],
    *,
    comments: bool,
    nested: bool = False,
    why: bool = False,
    notes: Notes | None = None,
) -> list[str]:
    """Lines of the function; ``called`` gets the symbols in it."""
    out = _print_signature(trace, pad, comments, nested)
    inner = pad + INDENT
    last_index: int | None = None
    last_origin = ""
    for number, line in enumerate(trace.bound_symbols):
        called.add(line.symbol)
        for body in line.bodies():
            out += _print_function(body.trace, inner, called, comments=comments, nested=True)
        text = print_line(line)
        if not comments:
            out.append(inner + text)
            continue
        if line.origin != last_index and line.symbol != DEL:
            last_index = line.origin
            origin = str(trace.origin_of(line) or "")
            if origin and origin != last_origin:
                out.append(f"{inner}# {one_line(origin)}")
                last_origin = origin
        comment = line_comment(line)
        if notes is not None and (note := notes.get((number, None))):
            comment = f"{comment}  {note}" if comment else note
        out.append(f"{inner}{text}  # {comment}" if comment else inner + text)
        for position, member in enumerate(line.subsymbols):
            note = notes.get((number, position), "") if notes else ""
            out.append(f"{inner}  # {one_line(print_line(member))}{'  ' if note else ''}{note}")
        if why and line.why:
            out.append(f"{inner}  # why: {one_line(line.why)}")
    out.append(f"{inner}return {print_arg(trace.outputs)}")
    return out


def print_trace(trace: TraceCtx, *, comments: bool = False, why: bool = False, notes: Notes | None = None) -> str:
    """The whole trace as source text, ending in a newline; ``why`` adds why lines stayed out of fusions.

    ``notes`` are appended to the comments of lines and of members of fusions; their text must be harmless.

    Called with a list (which it clears, so that inputs can be freed after their last use), the printed function
    returns the outputs.
    """
    head = []
    if comments and trace.provenance:
        head.append(f"# {one_line(trace.provenance)}")
    if comments and trace.constants:
        head += [f"# constant {_typed(Variable(c.name, c.type))}" for c in trace.constants]
    called: set[str] = set()
    function = _print_function(trace, "", called, comments=comments or why, why=why, notes=notes)
    symbols = {symbol.split(".", 1)[0] for symbol in called}
    imports = ["import torch"] + [f"import {name}" for name in ("operator", "math") if name in symbols]
    if any(symbol.startswith("torch.ops.thunderfx.") for symbol in called):
        imports.append("import thunderfx.executors.attention")
    if "aten" in symbols:
        imports.append("aten = torch.ops.aten")
    return "\n".join(head + imports + ["", *function]) + "\n"


def returned_names(trace: TraceCtx) -> set[str]:
    """Names that the trace returns."""
    return set(names_in(trace.outputs))
