"""What a user sees: run, traces, diff and runs on small models, in the installed command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODEL = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 16)
        self.b = torch.nn.Linear(16, 4)

    def forward(self, x):
        h = self.a(x)
        h = torch.relu(h)
        return self.b(h)

model = Net

def inputs():
    return (torch.randn(4, 8),)
"""


COUNTING_LOSS = """
def loss(output):
    with open("count", "a") as file:
        file.write(".")
    return output.sum()
"""


class Shell:
    """Runs the command in a folder with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = {**os.environ, "THUNDERFX_HOME": str(folder / "store"), "NO_COLOR": "1"}

    def start(self, *args: str, **options) -> subprocess.Popen:
        command = [sys.executable, "-m", "thunderfx_cli", *args]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(command, cwd=self.folder, env=self.env, **pipes, **options)

    def __call__(self, *args: str, code: int = 0) -> str:
        process = self.start(*args)
        out, err = process.communicate(timeout=120)
        assert process.returncode == code, (process.returncode, out, err)
        self.err = err
        return out

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    shell = Shell(tmp_path_factory.mktemp("cli"))
    shell.write("model.py", MODEL)
    shell.write("counting.py", MODEL + COUNTING_LOSS)
    shell.write("tanh.py", MODEL.replace("torch.relu", "torch.tanh"))
    shell("run", "model.py", "--name", "first", "--check", "--steps", "5")
    shell("run", "model.py", "--name", "second", "--quiet", "--steps", "5")
    shell("run", "tanh.py", "--name", "tanh", "--quiet", "--steps", "5")
    return shell


def test_summary_of_a_stored_run(shell):
    run = json.loads(shell("runs", "--json"))[-1]
    assert run["name"] == "first"
    assert run["target"] == "model.py"
    assert run["device"] == "cpu"
    assert run["step_ms"] > 0


def test_backward_lines_stand_under_the_users_source(shell):
    text = shell("traces", "first", "--backward")
    assert "# a | model.py:10 | h = self.a(x)" in text
    assert "# model.py:11 | h = torch.relu(h)\n  threshold_backward" in text
    assert "def forward" not in text


def test_raw_trace_is_a_program(shell):
    text = shell("traces", "first", "--forward", "--raw")
    compile(text, "trace", "exec")
    assert "#" not in text


def test_equal_runs_do_not_differ(shell):
    assert "traces: no differences" in shell("diff", "first", "second")


def test_one_activation_changes_exactly_its_lines(shell):
    text = shell("diff", "second", "tanh")
    changed = [line.strip() for line in text.splitlines() if line.strip()[:2] in ("- ", "+ ")]
    symbols = [line.split(" = ")[1].split("(")[0] for line in changed]
    assert symbols == [
        "aten.relu_.default",
        "aten.tanh_.default",
        "aten.threshold_backward.grad_input",
        "aten.tanh_backward.grad_input",
    ]


def test_stages_are_listed_and_an_unknown_one_is_refused(shell):
    assert "dce" in shell("traces", "--list-stages")
    shell("traces", "--stage", "nonsense", code=2)
    assert "execution" in shell.err


def test_unknown_run(shell):
    shell("traces", "nonsense", code=4)
    assert "no run is called 'nonsense'" in shell.err


def test_missing_file(shell):
    shell("run", "modle.py", code=2)
    assert "modle.py" in shell.err and "model.py" in shell.err


def test_syntax_error_names_file_and_line(shell):
    shell.write("broken.py", "import torch\n\ndef model(:\n    pass\n")
    shell("run", "broken.py", code=1)
    assert "broken.py:3" in shell.err
    assert "Traceback" not in shell.err


def test_error_in_forward_names_the_users_line(shell):
    shell.write("wrong.py", MODEL.replace("return self.b(h)", "return self.b(h) @ torch.ones(3, 3)"))
    shell("run", "wrong.py", code=1)
    assert "wrong.py:12" in shell.err
    assert "Traceback" not in shell.err


def test_file_without_a_model(shell):
    shell.write("nothing.py", "import torch\nnet = torch.nn.Linear(2, 2)\n")
    shell("run", "nothing.py", code=1)
    assert "nothing was compiled" in shell.err and "nothing.py" in shell.err


def test_check_fails_where_compiled_differs(shell):
    shell.write(
        "differs.py",
        MODEL.replace("return self.b(h)", "return self.b(h) * (2 if torch.compiler.is_compiling() else 1)"),
    )
    text = shell("run", "differs.py", "--check", "--steps", "1", code=3)
    assert "FAILED" in text and "output" in text


def test_script_gets_its_arguments_and_its_compile_call_is_captured(shell):
    script = """\
        import argparse
        import torch

        if __name__ == "__main__":
            parser = argparse.ArgumentParser()
            parser.add_argument("--width", type=int)
            width = parser.parse_args().width
            net = torch.compile(torch.nn.Linear(width, 3))
            net(torch.randn(2, width)).sum().backward()
            print("width", width)
        """
    import textwrap

    shell.write("script.py", textwrap.dedent(script))
    text = shell("run", "script.py", "--name", "script", "--", "--width", "5")
    assert text.startswith("width 5\n")
    assert "f32[2, 5]" in shell("traces", "script", "--forward")


def wait_for_steps(shell, least: int = 8) -> None:
    """Wait until the model of ``counting.py``, which is being run, has made some steps."""
    counter, end = shell.folder / "count", time.monotonic() + 100
    while not (counter.exists() and counter.stat().st_size >= least):
        assert time.monotonic() < end, "the model never made a step"
        time.sleep(0.05)
    counter.unlink()


def test_kill_leaves_earlier_runs_intact(shell):
    before = shell("runs", "--json")
    process = shell.start("run", "counting.py", "--steps", "1000000")
    wait_for_steps(shell)
    process.kill()
    process.communicate()
    assert shell("runs", "--json") == before
    assert "def backward" in shell("traces", "first", "--backward")


def test_interrupt_stores_what_was_measured(shell):
    def default_interrupt() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    process = shell.start("run", "counting.py", "--steps", "1000000", "--name", "stopped", preexec_fn=default_interrupt)
    wait_for_steps(shell)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    run = json.loads(shell("runs", "--json"))[0]
    assert (run["name"], run["status"]) == ("stopped", "interrupted")
    assert run["step_ms"] > 0


@pytest.mark.parametrize("command", (["--help"], ["run", "--help"], ["traces", "--help"], ["diff", "--help"], ["runs"]))
def test_no_torch_is_imported(shell, command):
    process = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "thunderfx_cli", *command],
        capture_output=True,
        text=True,
        env=shell.env,
        cwd=shell.folder,
    )
    assert process.returncode == 0
    imported = {line.rsplit("|", 1)[-1].strip() for line in process.stderr.splitlines()}
    assert not imported & {"torch", "triton", "numpy"}
