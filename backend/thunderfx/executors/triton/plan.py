"""A kernel before it is code: iteration space, loads, computations, reductions, stores. It prints readably."""

from __future__ import annotations

import dataclasses

from thunderfx.executors.triton.index import Index


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

    def __str__(self) -> str:
        return f"{self.var} = {self.expression}"


@dataclasses.dataclass(frozen=True)
class Reduce:
    """Over the columns: ``kind`` is ``sum``, ``max`` or ``min``; ``neutral`` stands where there is no column."""

    var: str
    kind: str
    operand: str
    neutral: str

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
    """``rows`` times ``columns`` points; without columns (1) it is a pointwise kernel over ``rows`` elements."""

    name: str
    rows: int
    columns: int
    steps: list[Step] = dataclasses.field(default_factory=list)

    @property
    def buffers(self) -> list[Buffer]:
        """Those read, then those written, each once."""
        read = [step.buffer for step in self.steps if isinstance(step, Load)]
        written = [step.buffer for step in self.steps if isinstance(step, Store)]
        return list(dict.fromkeys([*read, *written]))

    def __str__(self) -> str:
        space = f"{self.rows} rows x {self.columns} columns" if self.columns > 1 else f"{self.rows} elements"
        return "\n".join([f"kernel {self.name}: {space}", *(f"  {step}" for step in self.steps)])
