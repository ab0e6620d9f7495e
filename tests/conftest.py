"""Triton's kernels run in its interpreter, which has to be chosen before triton is imported."""

import os

os.environ.setdefault("TRITON_INTERPRET", "1")
