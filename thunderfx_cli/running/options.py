"""What ``thunderfx run`` was asked to do, checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from thunderfx.dynamo import RecordingCompiler, ThunderFXCompiledObject, thunderfx
from thunderfx.dynamo.lightning import LightningCompiled, lightning_problem

from thunderfx_cli.errors import UsageError


@dataclasses.dataclass(frozen=True)
class RunOptions:
    device: torch.device
    executors: tuple[str, ...] | None
    steps: int
    warmup: int
    seed: int
    backward: bool
    dynamic: bool | None
    fullgraph: bool
    strict: bool
    backend: str = "thunderfx"

    def compile_options(self) -> dict[str, object]:
        """Arguments for ``thunderfx()``."""
        return {
            "executors": list(self.executors) if self.executors else None,
            "strict": self.strict,
            "dynamic": self.dynamic,
            "fullgraph": self.fullgraph,
        }

    def compiled(self, fn: Callable[..., Any], **more: Any) -> Any:
        """``fn`` compiled by the backend that was asked for, as a ``ThunderFXCompiledObject``; ``more`` goes first."""
        chosen: dict[str, Any] = self.compile_options() | more
        if self.backend == "thunderfx":
            return thunderfx(fn, **chosen)
        if self.backend == "lightning":
            problem = lightning_problem()
            if problem:
                raise UsageError(f"--backend lightning: {problem}")
            return LightningCompiled(fn)
        backend = RecordingCompiler(self.backend)
        options = {key: value for key, value in chosen.items() if key not in ("executors", "strict")}
        return ThunderFXCompiledObject(backend, torch.compile(fn, backend=backend, **options))


def resolve_device(text: str) -> torch.device:
    """``auto``, ``cpu``, ``cuda`` or ``cuda:i``. Raises :class:`UsageError` for a device that is not there."""
    if text == "auto":
        return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(text)
    except RuntimeError:
        raise UsageError(f"--device {text}: not a device; use auto, cpu, cuda or cuda:0") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {text}: only cpu and cuda are supported")
    if device.type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UsageError(f"--device {text}: torch sees no CUDA device", hint="Use --device cpu.")
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= torch.cuda.device_count():
        raise UsageError(f"--device {text}: there are {torch.cuda.device_count()} CUDA devices, counted from 0")
    return torch.device("cuda", index)
