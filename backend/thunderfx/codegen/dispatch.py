"""Running compiled programs without autograd's part of the dispatcher.

Private names of torch used here (checked on 2.13): ``torch._C._AutoDispatchBelowAutograd``, which leaves out the
autograd keys only (views stay views of their base and in-place operators still count versions: that is the
ADInplaceOrView key), and ``torch.autograd.forward_ad._current_level``, which is negative outside forward-mode AD.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad


def below_autograd(program: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """``program``, run without recording gradients: AOTAutograd differentiated it already.

    Inside a forward-mode AD level the program runs as it is: tangents travel through the autograd keys.
    """
    guard = torch._C._AutoDispatchBelowAutograd

    def run(args: list[Any]) -> Any:
        if forward_ad._current_level >= 0:
            return program(args)
        with guard():
            return program(args)

    return run
