"""The sample models without a compiler: they build, run forward and backward, and their loss is finite."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch

SAMPLES = Path(__file__).parents[2] / "sample_models"
SCRIPTS = ("train_loop",)
MODELS = tuple(sorted(path.stem for path in SAMPLES.glob("*.py") if path.stem not in SCRIPTS))


@pytest.fixture(scope="module", params=MODELS)
def stepped(request):
    """A sample's names, its model after one backward pass, and the loss."""
    names = runpy.run_path(str(SAMPLES / f"{request.param}.py"))
    torch.manual_seed(0)
    model = names["model"]()
    loss = names["loss"](model(*names["inputs"]()))
    loss.backward()
    return names, model, loss


def test_the_loss_is_a_finite_scalar(stepped):
    _, _, loss = stepped
    assert loss.shape == ()
    assert torch.isfinite(loss)


def test_every_parameter_has_a_finite_gradient(stepped):
    _, model, _ = stepped
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_two_models_of_one_seed_are_equal(stepped):
    """Comparisons with eager rest on it: no dropout, and the seed decides weights and inputs."""
    names, _, loss = stepped
    torch.manual_seed(0)
    again = names["loss"](names["model"]()(*names["inputs"]()))
    torch.testing.assert_close(again, loss)


def test_convnet_trains_its_batch_norm():
    names = runpy.run_path(str(SAMPLES / "convnet.py"))
    model = names["model"]()
    norm = model.stem[1]
    before = norm.running_mean.clone()
    model(*names["inputs"]())
    assert not torch.equal(norm.running_mean, before)
    assert norm.num_batches_tracked == 1


def test_nanogpt_ties_its_head_to_its_embedding():
    model = runpy.run_path(str(SAMPLES / "nanogpt.py"))["model"]()
    assert model.lm_head.weight is model.wte.weight


@pytest.mark.parametrize("name", ("nanogpt", "llama"))
def test_no_position_sees_a_later_one(name):
    """Changing the last token leaves the logits of every earlier position as they were."""
    names = runpy.run_path(str(SAMPLES / f"{name}.py"))
    torch.manual_seed(0)
    model = names["model"]()
    idx, targets = names["inputs"]()
    changed = idx.clone()
    changed[:, -1] = (changed[:, -1] + 1) % names["VOCAB"]
    with torch.no_grad():
        first, second = model(idx, targets)[0], model(changed, targets)[0]
    torch.testing.assert_close(first[:, :-1], second[:, :-1])
    assert not torch.allclose(first[:, -1], second[:, -1])


def test_train_loop_lowers_its_loss():
    """The program as a user starts it, with ``torch.compile`` replaced by eager execution."""
    code = (
        "import runpy, sys, torch\n"
        "torch.compile = lambda model: model\n"
        "sys.argv = ['train_loop.py', '--steps', '40', '--batch-size', '64']\n"
        f"runpy.run_path({str(SAMPLES / 'train_loop.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert len(losses) > 2
    assert losses[-1] < losses[0]
