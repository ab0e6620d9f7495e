"""What held memory: in a model's run a step of its own, in a script's the traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from thunderfx.profiling.allocations.alive import alive_tensors, of_module, of_optimizers
from thunderfx.profiling.allocations.failure import memory_error, picture
from thunderfx.profiling.allocations.model import MemoryProfile
from thunderfx.profiling.allocations.profile import estimated_saved, profile_step

from thunderfx_cli.errors import CommandError
from thunderfx_cli.loading.model import LoadedModel
from thunderfx_cli.loading.source import shown_path
from thunderfx_cli.running.measured import Measured
from thunderfx_cli.running.options import RunOptions
from thunderfx_cli.running.step import backward, clear_gradients, grad_mode, gradient_leaves, loss_of, module_behind
from thunderfx_cli.running.trees import tensors_in

_SCRIPT = "the peak is explained for a model (file.py:attr) only: a script runs its own steps"


def profile_memory(loaded: LoadedModel, compiled: Any, options: RunOptions, measured: Measured) -> MemoryProfile | None:
    """Run one more step for its allocations. Raises what the model raises where memory runs out."""
    held: dict[str, Any] = {}

    def forward() -> None:
        with grad_mode(options.backward):
            held["output"] = compiled(*loaded.args, **loaded.kwargs)

    def loss() -> None:
        found = loss_of(loaded, held["output"])
        held.clear()
        held["loss"] = found

    def back() -> None:
        if held.get("loss") is not None:
            backward(held.pop("loss"))

    clear_gradients(gradient_leaves(loaded.callable, loaded.args, loaded.kwargs))
    phases = [("forward", forward), *((("loss", loss), ("backward", back)) if options.backward else ())]
    module = module_behind(loaded.callable)
    try:
        return profile_step(
            measured.subgraphs,
            phases,
            lambda: alive_tensors(options.device, named_tensors(module, loaded)),
            options.device,
            containers_of(module),
        )
    except Exception as e:  # the run has been measured: what is missing is said, and does not end it
        if memory_error(e) is not None:
            raise
        measured.warnings.append(f"what held memory is not known: {type(e).__name__}: {e}")
        return None


def picture_memory(error: CommandError, options: RunOptions, measured: Measured) -> bool:
    """Where ``error`` says that memory ran out, keep what was alive then; returns whether it does."""
    cause = memory_error(error)
    if cause is None:
        return False
    modules = [item._tfx_original() for item in measured.compiled if hasattr(item, "_tfx_original")]
    named = [item for module in modules or [None] for item in named_tensors(module, measured.loaded)]
    ours = str(Path(__file__).parents[1])
    found = picture(cause, measured.subgraphs, named, options.device, [ours])
    measured.memory = MemoryProfile(out_of_memory=found, saved=estimated_saved(measured.subgraphs))
    if found.place.file:  # the line that asked for memory, where a traceback knows the beginning of its function
        error.where = f"{shown_path(found.place.file)}:{found.place.number}"
    error.hint = error.hint or "thunderfx memory  (what was alive when memory ran out)"
    return True


def estimate_memory(measured: Measured) -> MemoryProfile | None:
    """What the traces of a script's subgraphs tell."""
    saved = estimated_saved(measured.subgraphs)
    return MemoryProfile(saved=saved, note=_SCRIPT) if saved is not None else None


def named_tensors(module: Any, loaded: LoadedModel | None) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Kind, name and tensor of what is the model's, an optimizer's or an input."""
    if isinstance(module, torch.nn.Module):
        yield from of_module(module)
    yield from of_optimizers()
    if loaded is not None:
        for path, tensor in (*tensors_in(loaded.args, "input"), *tensors_in(loaded.kwargs, "input")):
            yield "inputs", path, tensor
            if tensor.grad is not None:
                yield "gradients", f"gradient of {path}", tensor.grad


def containers_of(module: Any) -> frozenset[str]:
    """Paths of submodules that are never called."""
    if not isinstance(module, torch.nn.Module):
        return frozenset()
    containers = (torch.nn.ModuleList, torch.nn.ModuleDict)
    return frozenset(name for name, item in module.named_modules() if isinstance(item, containers))
