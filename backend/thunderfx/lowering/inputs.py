"""What each input of a compiled graph is: a parameter's path, an argument's name, a saved value, a gradient.

Private names of torch used here (checked on 2.13): ``_dynamo_source`` of Dynamo's placeholders, and the
``desc`` metadata of AOTAutograd's placeholders (torch/_functorch/_aot_autograd/descriptors.py). Where a version of
torch lacks them the source text is empty.
"""

from __future__ import annotations

from typing import Any

import torch

from thunderfx.lowering.origins import module_path


def _source_name(node: torch.fx.Node) -> str:
    source = getattr(node, "_dynamo_source", None)
    if source is None:
        source = getattr(node.meta.get("grapharg"), "source", None)
    name: Any = getattr(source, "name", "")
    text = str(name() if callable(name) else name)
    if "._" not in text and text.startswith("L['") and text.endswith("']") and text.count("[") == 1:
        return text[3:-2]
    if text.startswith("L['args']["):
        return "args" + text.removeprefix("L['args']")
    path = module_path(text)
    return text if "(" in path or not path else path


def input_sources(graph: torch.fx.Graph) -> list[str]:
    """For each placeholder of a Dynamo graph, in order, the user's name for it (``""`` where unknown)."""
    return [_source_name(node) for node in graph.nodes if node.op == "placeholder"]


def described_source(node: torch.fx.Node, dynamo_sources: list[str]) -> str:
    """The same for a placeholder of an AOTAutograd graph; one without descriptor comes from the forward graph."""
    desc = node.meta.get("desc")
    index = getattr(desc, "idx", None)
    kind = type(desc).__name__
    if kind == "PlainAOTInput" and isinstance(index, int) and index < len(dynamo_sources):
        return dynamo_sources[index]
    target = getattr(desc, "target", None)
    if isinstance(target, str):
        return target
    if kind == "TangentAOTInput" or node.name.startswith("tangents_"):
        return "gradient of an output"
    return "saved for backward" if desc is None and dynamo_sources else ""
