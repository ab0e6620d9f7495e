"""Trace -> Python source -> callable."""

from thunderfx.codegen.callable import boxed, compiled, unboxed
from thunderfx.codegen.resolve import resolve
from thunderfx.codegen.watch import Watch

__all__ = ["Watch", "boxed", "compiled", "resolve", "unboxed"]
