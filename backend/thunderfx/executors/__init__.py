"""Executors: what runs the lines of a trace."""

from thunderfx.executors.base import Executor, OperatorExecutor
from thunderfx.executors.registry import resolve_executors

__all__ = ["Executor", "OperatorExecutor", "resolve_executors"]
