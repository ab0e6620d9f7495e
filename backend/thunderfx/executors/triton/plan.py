"""A kernel before it is code: iteration space, loads, computations, reductions, stores. It prints readably."""

from __future__ import annotations

import dataclasses

from thunderfx.executors.triton.index import Index
from thunderfx.executors.triton.sizes import Size, symbols_in, text_of


@dataclasses.dataclass(frozen=True)
class Buffer:
    """A tensor in memory that the kernel reads or writes; ``dtype`` is torch's name."""

    name: str
    dtype: str


@dataclasses.dataclass(frozen=True)
class Load:
    var: str
    buffer: Buffer
    index: Index
    condition: str = ""  #: read only where this variable is true; elsewhere the value is 0

    def __str__(self) -> str:
        where = f" if {self.condition}" if self.condition else ""
        return f"{self.var} = load {self.buffer.name}[{self.index}]{where}"


@dataclasses.dataclass(frozen=True)
class Compute:
    var: str
    expression: str
    sizes: tuple[Size, ...] = ()  #: those that the expression names

    def __str__(self) -> str:
        return f"{self.var} = {self.expression}"


@dataclasses.dataclass(frozen=True)
class Reduce:
    """Over the columns: ``kind`` is ``sum``, ``max`` or ``min``; ``neutral`` stands where there is no column. ``dtype``
    is what it accumulates in."""

    var: str
    kind: str
    operand: str
    neutral: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.var} = {self.kind} of {self.operand} over columns"


@dataclasses.dataclass(frozen=True)
class Store:
    buffer: Buffer
    index: Index
    var: str
    per_row: bool  #: one value for each row, not for each column

    def __str__(self) -> str:
        return f"store {self.buffer.name}[{self.index}] = {self.var}"


Step = Load | Compute | Reduce | Store


@dataclasses.dataclass
class Kernel:
    """``rows`` times ``columns`` points; without columns (1) it is a pointwise kernel over ``rows`` elements.

    ``depends`` says of each variable on which of ``m`` (the row) and ``n`` (the column) it depends.
    """

    name: str
    rows: Size
    columns: Size
    steps: list[Step] = dataclasses.field(default_factory=list)
    depends: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)

    @property
    def has_columns(self) -> bool:
        return not (isinstance(self.columns, int) and self.columns == 1)

    @property
    def buffers(self) -> list[Buffer]:
        """Those read, then those written, each once."""
        read = [step.buffer for step in self.steps if isinstance(step, Load)]
        written = [step.buffer for step in self.steps if isinstance(step, Store)]
        return list(dict.fromkeys([*read, *written]))

    @property
    def symbols(self) -> list[str]:
        """Symbols of sizes that the kernel takes as arguments."""
        sizes = [self.rows, self.columns]
        for step in self.steps:
            sizes += step.index.sizes() if isinstance(step, (Load, Store)) else ()
            sizes += step.sizes if isinstance(step, Compute) else ()
        return symbols_in(sizes)

    @property
    def contiguous(self) -> str:
        """The loop variable along which most accesses are contiguous, ``"m"`` or ``"n"``."""
        votes = {"m": 0, "n": 0}
        for step in self.steps:
            if isinstance(step, (Load, Store)) and {"m", "n"} <= step.index.atoms():
                for variable in votes:
                    votes[variable] += step.index.stride(variable) == 1
        return "m" if votes["m"] > votes["n"] else "n"

    def __str__(self) -> str:
        rows, columns = text_of(self.rows), text_of(self.columns)
        space = f"{rows} rows x {columns} columns" if self.has_columns else f"{rows} elements"
        return "\n".join([f"kernel {self.name}: {space}", *(f"  {step}" for step in self.steps)])
