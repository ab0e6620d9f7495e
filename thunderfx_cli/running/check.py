"""``--check``: the compiled model against eager."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import torch

from thunderfx_cli.loading.model import LoadedModel
from thunderfx_cli.running.step import backward, clear_gradients, gradient_leaves, loss_of, module_behind
from thunderfx_cli.running.trees import cast, copied, tensors_in
from thunderfx_cli.store.schema import CheckResult

#: Relative and absolute tolerance per dtype; anything else must be equal.
TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
    torch.float32: (2e-5, 1e-5),
    torch.complex64: (2e-5, 1e-5),
    torch.float16: (5e-3, 2e-3),
    torch.bfloat16: (2.5e-2, 1.5e-2),
}
#: Beyond the tolerance a result still passes if it is at most this much further from float64 than eager is.
FLOAT64_SLACK = 2.0


def check_against_eager(loaded: LoadedModel, compiled: Any, *, seed: int, train: bool) -> CheckResult:
    """Outputs, gradients, buffers, mutated inputs and RNG state of one step, compiled and eager.

    Where they differ beyond :data:`TOLERANCES` both are held against eager in float64.
    """
    try:
        reference, precise = copy.deepcopy(loaded.callable), copy.deepcopy(loaded.callable)
    except Exception as e:
        return CheckResult(False, (f"the model cannot be copied for the comparison: {type(e).__name__}: {e}",))
    want = observe_step(loaded, reference, seed, train)
    got = observe_step(loaded, compiled, seed, train)
    exact: dict[str, torch.Tensor] | None = None
    bad: list[str] = []
    notes: list[str] = []
    for name in [*want, *(name for name in got if name not in want)]:
        if name not in got or name not in want:
            bad.append(f"{name}: only {'eager' if name in want else 'compiled'} has it")
            continue
        problem = _difference(want[name], got[name])
        if problem is None:
            continue
        if exact is None:
            exact = in_float64(dataclasses.replace(loaded, callable=precise), seed, train)
        judged = _closer(name, want[name], got[name], exact)
        (notes if judged.startswith("ok") else bad).append(f"{name}: {problem}; {judged}")
    checked = f"{len(want)} values compared with eager"
    return CheckResult(not bad, (checked, *bad, *notes))


def observe_step(loaded: LoadedModel, fn: Any, seed: int, train: bool) -> dict[str, torch.Tensor]:
    """Outputs, gradients, inputs and buffers afterwards, and generator state of one step on copies of the inputs."""
    return _observe(loaded, fn, copied((loaded.args, loaded.kwargs)), seed, train)


def _observe(loaded: LoadedModel, fn: Any, inputs: Any, seed: int, train: bool) -> dict[str, torch.Tensor]:
    args, kwargs = inputs
    leaves = gradient_leaves(fn, args, kwargs)
    clear_gradients(leaves)
    torch.manual_seed(seed)
    seen: dict[str, torch.Tensor] = {}
    with torch.set_grad_enabled(train):
        output = fn(*args, **kwargs)
        for path, tensor in tensors_in(output, "output"):
            seen[path] = tensor.detach().clone()
        loss = loss_of(loaded, output) if train else None
        if loss is not None:
            backward(loss)
            for name, leaf in leaves.items():
                if leaf.grad is not None:
                    seen[f"gradient of {name}"] = leaf.grad.detach().clone()
    seen["RNG state"] = torch.get_rng_state()
    for path, tensor in (*tensors_in(args, "input"), *tensors_in(kwargs, "input")):
        seen[f"{path} afterwards"] = tensor.detach().clone()
    module = module_behind(fn)
    if isinstance(module, torch.nn.Module):
        for name, buffer in module.named_buffers():
            seen[f"buffer {name}"] = buffer.detach().clone()
    clear_gradients(leaves)
    return seen


def in_float64(loaded: LoadedModel, seed: int, train: bool) -> dict[str, torch.Tensor]:
    """The same step in eager float64, which changes the model; empty where it does not run in float64."""
    fn = loaded.callable
    try:
        precise = fn.double() if isinstance(fn, torch.nn.Module) else fn
        inputs = cast(copied((loaded.args, loaded.kwargs)), torch.float64)
        return _observe(loaded, precise, inputs, seed, train)
    except (RuntimeError, TypeError, ValueError):
        return {}


def _difference(want: torch.Tensor, got: torch.Tensor) -> str | None:
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"eager {tuple(want.shape)} {want.dtype}, compiled {tuple(got.shape)} {got.dtype}"
    if want.dtype in TOLERANCES:
        rtol, atol = TOLERANCES[want.dtype]
        if torch.allclose(want, got, rtol=rtol, atol=atol, equal_nan=True):
            return None
        return f"largest difference {_error(want, got):.3g}"
    same = torch.equal(want.float(), got.float()) if want.is_floating_point() else torch.equal(want, got)
    return None if same else "differs"


def _error(a: torch.Tensor, b: torch.Tensor) -> float:
    if not a.numel():
        return 0.0
    kind = torch.complex128 if a.is_complex() else torch.float64
    return float((a.to(kind) - b.to(kind)).abs().max())


def _closer(name: str, want: torch.Tensor, got: torch.Tensor, exact: dict[str, torch.Tensor]) -> str:
    truth = exact.get(name)
    if truth is None or truth.shape != got.shape or not got.is_floating_point():
        return "no float64 reference"
    eager_error, error = _error(want, truth), _error(got, truth)
    verdict = "ok" if error <= FLOAT64_SLACK * eager_error else "wrong"
    return f"{verdict}: error against float64 is {error:.3g}, eager's is {eager_error:.3g}"
