"""What an executor is."""

from __future__ import annotations

from thunderfx.trace import BoundSymbol


class Executor:
    """Runs lines of a trace. ``name`` is what users write and traces show."""

    name: str = ""

    def __repr__(self) -> str:
        return f"<executor {self.name}>"


class OperatorExecutor(Executor):
    """Runs single lines."""

    def can_execute(self, line: BoundSymbol) -> bool:
        """Whether this executor runs ``line``."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it can execute")
