"""Regions as Triton kernels that we generate: index -> plan -> source -> launch; ``executor`` is the way in."""

from thunderfx.executors.triton.executor import TritonExecutor

__all__ = ["TritonExecutor"]
