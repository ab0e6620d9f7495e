"""Every operator through PyTorch's own kernels. It runs whatever no other executor claimed."""

from __future__ import annotations

from thunderfx.executors.base import OperatorExecutor
from thunderfx.trace import BoundSymbol


class TorchExecutor(OperatorExecutor):
    name = "torch"

    def can_execute(self, line: BoundSymbol) -> bool:
        return True
