"""Traces as Python source.

The bare form is the program that runs; the commented form differs from it in comments only. Printing is
deterministic: equal traces give equal text.
"""

from __future__ import annotations

import re

from thunderfx.trace.bound_symbol import DEL, BoundSymbol, bodies_in, names_in
from thunderfx.trace.trace import TraceCtx
from thunderfx.trace.values import Arg, Body, DictArg, ListArg, Literal, Ref, SliceArg, TupleArg, Variable

INDENT = "  "
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def one_line(text: str) -> str:
    """``text`` made safe for a comment: control, line-breaking and direction-changing characters escaped."""
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
        return "del " + ", ".join(line.uses())
    parts = [print_arg(arg) for arg in line.args]
    parts += [f"{key}={print_arg(value)}" for key, value in line.kwargs]
    return f"{line.symbol}({', '.join(parts)})"


def print_line(line: BoundSymbol) -> str:
    """One line without comment."""
    call = print_call(line)
    if line.unpack:
        names = [out.name if out is not None else "_" for out in line.outputs]
        return f"({', '.join(names)}{',' if len(names) == 1 else ''}) = {call}"
    if line.outputs and line.outputs[0] is not None:
        return f"{line.outputs[0].name} = {call}"
    return call


def _typed(var: Variable) -> str:
    return f'{var.name}: "{one_line(str(var.type))}"'


def line_comment(line: BoundSymbol) -> str:
    """Types of what the line defines, then its executor where it is not torch, then its tags."""
    parts = [_typed(var) for var in line.defines()]
    notes = [] if line.executor == "torch" or line.symbol == DEL else [line.executor]
    notes += line.tags
    if notes:
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


def _print_function(trace: TraceCtx, pad: str, comments: bool, nested: bool, why: bool = False) -> list[str]:
    out = _print_signature(trace, pad, comments, nested)
    inner = pad + INDENT
    last_origin = ""
    for line in trace.bound_symbols:
        for arg in (*line.args, *(value for _, value in line.kwargs)):
            for body in bodies_in(arg):
                out += _print_function(body.trace, inner, comments, nested=True)
        text = print_line(line)
        if not comments:
            out.append(inner + text)
            continue
        origin = "" if line.symbol == DEL else str(trace.origin_of(line) or "")
        if origin and origin != last_origin:
            out.append(f"{inner}# {one_line(origin)}")
            last_origin = origin
        comment = line_comment(line)
        out.append(f"{inner}{text}  # {comment}" if comment else inner + text)
        for member in line.subsymbols:
            out.append(f"{inner}  # {one_line(print_line(member))}")
        if why and line.why:
            out.append(f"{inner}  # why: {one_line(line.why)}")
    out.append(f"{inner}return {print_arg(trace.outputs)}")
    return out


def print_trace(trace: TraceCtx, *, comments: bool = False, why: bool = False) -> str:
    """The whole trace as source text, ending in a newline; ``why`` adds why lines stayed out of fusions.

    Called with a list (which it clears, so that inputs can be freed after their last use), the printed function
    returns the outputs.
    """
    head = []
    if comments and trace.provenance:
        head.append(f"# {one_line(trace.provenance)}")
    if comments and trace.constants:
        head += [f"# constant {_typed(Variable(c.name, c.type))}" for c in trace.constants]
    symbols = {line.symbol.split(".", 1)[0] for line in all_lines(trace)}
    imports = ["import torch"] + [f"import {name}" for name in ("operator", "math") if name in symbols]
    if any(line.symbol.startswith("torch.ops.thunderfx.") for line in all_lines(trace)):
        imports.append("import thunderfx.executors.attention")
    if "aten" in symbols:
        imports.append("aten = torch.ops.aten")
    return "\n".join(head + imports + [""] + _print_function(trace, "", comments or why, False, why)) + "\n"


def all_lines(trace: TraceCtx) -> list[BoundSymbol]:
    """Lines of the trace and of the nested traces in it."""
    out: list[BoundSymbol] = []
    for line in trace.bound_symbols:
        out.append(line)
        for arg in (*line.args, *(value for _, value in line.kwargs)):
            for body in bodies_in(arg):
                out += all_lines(body.trace)
    return out


def returned_names(trace: TraceCtx) -> set[str]:
    """Names that the trace returns."""
    return set(names_in(trace.outputs))
