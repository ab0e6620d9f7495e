"""What a value of a program is to the model. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from thunderfx.profiling.allocations.model import Place

if TYPE_CHECKING:
    from thunderfx.profiling.allocations.recorder import Program


class Roles:
    """Kinds of what the programs of a step make, by name."""

    def __init__(self, programs: Iterable[Program]) -> None:
        from thunderfx.profiling.allocations.recorder import output_names, saved_names

        known = list(programs)
        forwards = {program.subgraph: program.trace for program in known if program.direction == "forward"}
        backwards = {program.subgraph: program.trace for program in known if program.direction == "backward"}
        self._saved: list[set[str]] = []
        self._returned: list[dict[str, str]] = []
        self._directions = [program.direction for program in known]
        for program in known:
            names = output_names(program.trace)
            if program.direction == "forward":
                self._saved.append(set(saved_names(program.trace, backwards.get(program.subgraph))))
                self._returned.append(dict.fromkeys(names, ""))
                continue
            forward = forwards.get(program.subgraph)
            sources = [var.source or var.name for var in forward.inputs] if forward is not None else []
            self._saved.append(set())
            self._returned.append({name: source for name, source in zip(names, sources, strict=False) if name})

    def of(self, names: list[tuple[int, str, str]]) -> tuple[str, str]:
        """Kind, and what to call it, of a storage that holds the values ``names`` (program, name, type)."""
        for program, name, _ in names:
            if name in self._saved[program]:
                return "saved for backward", name
        for program, name, _ in names:
            if name in self._returned[program]:
                if self._directions[program] == "forward":
                    return "outputs", name
                source = self._returned[program][name]
                return "gradients", f"gradient of {source}" if source else name
        return "intermediates", names[0][1]


def place_of(program: Program, line: int) -> Place:
    """A line with the user's line behind it."""
    symbol = program.trace.bound_symbols[line]
    origin = program.trace.origin_of(symbol)
    where = (origin.module, origin.file, origin.line, origin.source) if origin is not None else ("", "", 0, "")
    return Place(program.subgraph, program.direction, line, symbol.symbol, *where)
