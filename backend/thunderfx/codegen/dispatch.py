"""Running compiled programs without autograd's part of the dispatcher.

Private name of torch used here (checked on 2.13): ``torch._C._AutoDispatchBelowAutograd``. It leaves out the autograd
keys only: views stay views of their base and in-place operators still count versions (the ADInplaceOrView key).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def below_autograd(program: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """``program``, run without recording gradients: AOTAutograd differentiated it already."""
    guard = torch._C._AutoDispatchBelowAutograd

    def run(args: list[Any]) -> Any:
        with guard():
            return program(args)

    return run
