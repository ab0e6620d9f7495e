"""Trace -> Python source -> callable."""

from thunderfx.codegen.callable import boxed, compiled, trace_at, unboxed
from thunderfx.codegen.probe import Probe
from thunderfx.codegen.resolve import resolve
from thunderfx.codegen.watch import Watch

__all__ = ["Probe", "Watch", "boxed", "compiled", "resolve", "trace_at", "unboxed"]
