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

Program = Callable[[list[Any]], Any]


def below_autograd(program: Program) -> Program:
    """``program``, run without recording gradients: AOTAutograd differentiated it already.

    Inside a forward-mode AD level the program runs as it is: tangents travel through the autograd keys.
    ``replace(other)`` of the result has it run another program from then on and returns the one before, so that a
    program can be watched for a while wherever the result has been handed to; until then that costs nothing.
    """
    guard = torch._C._AutoDispatchBelowAutograd

    def run(args: list[Any]) -> Any:
        if forward_ad._current_level >= 0:
            return program(args)
        with guard():
            return program(args)

    def replace(other: Program) -> Program:
        nonlocal program
        before, program = program, other
        return before

    run.replace = replace  # type: ignore[attr-defined]
    return run
