"""Origins of lines, read from FX node metadata.

AOTAutograd copies to each backward node the ``stack_trace`` and, as ``fwd_nn_module_stack`` and
``fwd_source_fn_stack``, the modules and torch-level call of the forward node that it differentiates
(torch/_functorch/_aot_autograd/graph_capture_wrappers.py and torch/fx/traceback.py).
"""

from __future__ import annotations

import os
import re
from typing import Any

import torch

from thunderfx.trace import Origin

_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in .*\n(?:    (?P<source>.*))?')
#: Frames in these folders are not the user's.
_NOT_USER = tuple(os.path.dirname(path) + os.sep for path in (torch.__file__, os.path.dirname(__file__)))
#: How Dynamo writes the way from a compiled module to its original: no part of the user's path.
_WRAPPER = re.compile(r"dict\(type\((?P<module>.+?)\)\.__dict__\)\['_tfx_func'\](?:\.__func__)?|\._orig_mod\b")
_DICT_MEMBER = re.compile(r"\.__dict__\['(_modules|_parameters|_buffers)'\]")
_ROOT = re.compile(r"^L\['\w+'\]")
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\[|\._(?:modules|parameters|buffers)\b")


def module_path(text: str) -> str:
    """``"L['self']._modules['blocks']._modules['0'].attn"`` -> ``"blocks.0.attn"``."""
    text = _WRAPPER.sub(lambda m: m["module"] or "", text)
    text = _DICT_MEMBER.sub(r".\1", _ROOT.sub("", text))
    text = _MEMBER.sub(lambda m: "[" if m.group().endswith("[") else "", text)
    text = re.sub(r"\[['\"]?([^'\"\]]+)['\"]?\]", r".\1", text)
    return text.strip(".").replace("..", ".")


class OriginTable:
    """Origins of one trace: each distinct one is kept once."""

    def __init__(self) -> None:
        self.origins: list[Origin] = []
        self._index: dict[Origin, int] = {}
        self._frames: dict[str, tuple[str, int, str]] = {}

    def add(self, meta: dict[str, Any]) -> int | None:
        """Index of the origin that a node's metadata tells, ``None`` where it tells nothing."""
        file, line, source = self._frame(meta.get("stack_trace") or "")
        modules = meta.get("nn_module_stack") or meta.get("fwd_nn_module_stack") or {}
        module = ""
        for path, _ in modules.values():
            module = path
        calls = meta.get("source_fn_stack") or meta.get("fwd_source_fn_stack") or []
        call = getattr(calls[-1][1], "__name__", str(calls[-1][1])) if calls else ""
        origin = Origin(module=module_path(module), call=call, file=file, line=line, source=source)
        if origin == Origin():
            return None
        index = self._index.get(origin)
        if index is None:
            index = self._index[origin] = len(self.origins)
            self.origins.append(origin)
        return index

    def _frame(self, stack_trace: str) -> tuple[str, int, str]:
        """File, line and source text of the innermost frame outside torch."""
        found = self._frames.get(stack_trace)
        if found is None:
            found = ("", 0, "")
            for match in _FRAME.finditer(stack_trace):
                if not match["file"].startswith(_NOT_USER):
                    found = (match["file"], int(match["line"]), (match["source"] or "").strip())
            self._frames[stack_trace] = found
        return found
