"""A run that runs out of memory is stored as failed, with what was alive and the line that asked for more."""

from __future__ import annotations

import json

from stored import printed, thunderfx

HUGE = "expand(10**7, 10**8).contiguous()"
BACKWARD = f"""
import torch
from torch import nn

class Huge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, g):
        return g.{HUGE}[:128, :64]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(64, 64)

    def forward(self, x):
        h = self.fc(x).relu()
        return Huge.apply(h)

model = Net

def inputs():
    return (torch.randn(128, 64),)
"""


def test_in_a_backward(tmp_path):
    (tmp_path / "net.py").write_text(BACKWARD)
    done = thunderfx("run", "net.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "you tried to allocate 4000000000000000 bytes" in done.stderr
    assert "at net.py:12" in done.stderr
    assert "try: thunderfx memory" in done.stderr
    assert "Traceback" not in done.stderr
    assert "run failed" in done.stdout
    run = json.loads(printed("runs", "--json", cwd=tmp_path))[0]
    assert run["status"] == "failed"
    found = json.loads(printed("memory", "--json", cwd=tmp_path))["out_of_memory"]
    assert found["asked_bytes"] == 4 * 10**15
    assert (found["phase"], found["place"]["symbol"]) == ("backward", "aten.clone.default")
    held = {(item["kind"], item.get("name", "")): item for item in found["tensors"]}
    assert held["parameters", "fc.weight"]["bytes"] == 64 * 64 * 4
    saved = held["saved for backward", "relu"]
    assert saved["bytes"] == 128 * 64 * 4
    assert (saved["place"]["module"], saved["place"]["direction"]) == ("fc", "forward")
    assert found["held_bytes"] == sum(group["bytes"] for group in found["groups"])
    text = printed("memory", cwd=tmp_path)
    assert "Out of memory" in text and "asked for 3637.98 TiB" in text


def test_while_the_model_is_made(tmp_path):
    (tmp_path / "net.py").write_text(
        f"import torch\n\ndef model():\n    kept = torch.zeros(1000)\n    kept.sum().{HUGE}\n\ninputs = ()\n"
    )
    done = thunderfx("run", "net.py", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "at net.py:5" in done.stderr
    found = json.loads(printed("memory", "--json", cwd=tmp_path))["out_of_memory"]
    held = {(item["kind"], item.get("name", "")): item["bytes"] for item in found["tensors"]}
    assert held["outside the subgraphs", "kept"] == 4000
    assert found["place"]["source"].startswith("kept.sum()")
