"""Executors: what runs the lines of a trace."""

from thunderfx.executors.base import Executor, Fusion, FusionExecutor, OperatorExecutor, Region
from thunderfx.executors.registry import ENTRY_POINTS, resolve_executors

__all__ = ["ENTRY_POINTS", "Executor", "Fusion", "FusionExecutor", "OperatorExecutor", "Region", "resolve_executors"]
