"""Trace -> Python source -> callable."""

from thunderfx.codegen.callable import boxed, unboxed
from thunderfx.codegen.resolve import resolve

__all__ = ["boxed", "resolve", "unboxed"]
