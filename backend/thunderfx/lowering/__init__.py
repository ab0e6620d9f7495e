"""From FX graphs to traces."""

from thunderfx.lowering.graph import lower_graph
from thunderfx.lowering.inputs import input_sources

__all__ = ["input_sources", "lower_graph"]
