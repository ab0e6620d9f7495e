"""From FX graphs to traces, and at torch level back."""

from thunderfx.lowering.graph import lower_graph
from thunderfx.lowering.inputs import input_sources
from thunderfx.lowering.raising import raise_graph

__all__ = ["input_sources", "lower_graph", "raise_graph"]
