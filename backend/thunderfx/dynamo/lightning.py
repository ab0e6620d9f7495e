"""lightning-thunder as a backend to compare with, where it is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from thunderfx.dynamo.subgraph import SubgraphInfo
from thunderfx.lowering.thunder_traces import from_thunder
from thunderfx.passes.stage import Stage


def lightning_problem() -> str:
    """Why lightning-thunder cannot be used, ``""`` where it can."""
    if importlib.util.find_spec("thunder") is None:
        return "lightning-thunder is not installed"
    try:
        lightning()
    except Exception as e:  # a version that does not go with this torch fails in any way
        return f"lightning-thunder cannot be imported: {type(e).__name__}: {e}"
    return ""


def lightning() -> Callable[..., Any]:
    """``thunder.dynamo.thunderfx``. Raises what its import raises."""
    from thunder.dynamo import thunderfx

    return thunderfx  # type: ignore[no-any-return]


class LightningCompiled:
    """``fn`` compiled by lightning-thunder, with its traces as ours; it is its own record of subgraphs."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._orig_mod = fn
        self._compiled = lightning()(fn)
        self._tfx_backend = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(*args, **kwargs)

    @property
    def subgraph_infos(self) -> list[SubgraphInfo]:
        """One for each forward trace; a backward trace belongs to the forward trace of the same position."""
        forward, backward = self._compiled.last_traces, self._compiled.last_backward_traces
        found = []
        for index, trace in enumerate(forward):
            info = SubgraphInfo(index=index)
            info.stages["forward"].append(Stage("execution", from_thunder(trace, "forward"), 0.0))
            if index < len(backward):
                info.stages["backward"].append(Stage("execution", from_thunder(backward[index], "backward"), 0.0))
                info.needs_backward, info.backward_calls = True, 1
            found.append(info)
        return found
