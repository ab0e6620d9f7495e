"""Generated Triton kernels, compiled and run on the device, against eager in float64."""

from __future__ import annotations

import pytest
import torch
from test_triton import CASES, check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


@pytest.mark.parametrize("name", CASES)
def test_like_eager(name):
    fn, *args = CASES[name]
    check(fn, *(arg.cuda() for arg in args))
