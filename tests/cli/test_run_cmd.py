"""``thunderfx run``: what it takes, prints and stores, in processes of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from stored import environment

from thunderfx_cli.store import Store, StoredRun

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

small, large = torch.nn.Linear(2, 2), Net
"""
INPUTS = """
model = Net

def inputs():
    return (torch.randn(4, 8),)
"""
PRINTING = """\
import torch

print("loading")

class Net(torch.nn.Module):
    def forward(self, x):
        y = x.sin()
        print("in forward")
        return y.cos()

model = Net()
inputs = (torch.randn(4, requires_grad=True),)
"""
RAISING = """\
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        y = x * 2
        if y.shape[0] == 4:
            raise ValueError("bad \\x1b[31mthing")
        return y

model = Net()
inputs = (torch.randn(4, 8, requires_grad=True),)
"""
SCRIPT = """\
import sys

import torch

def work(depth):
    if depth == 0:
        raise KeyError("lost")
    work(depth - 1)

net = torch.nn.Linear(3, 2)
if __name__ == "__main__":
    torch.compile(net)(torch.ones(4, 3)).sum().backward()
    print("arguments", sys.argv[1:])
    if "exit" in sys.argv:
        sys.exit(7)
    if "raise" in sys.argv:
        work(2)
"""
UNCOMPILED = """\
import torch

class Net(torch.nn.Linear):
    pass

net = Net(3, 2)
net(torch.ones(4, 3))
"""
SLEEPING = """\
import time
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x.sin()

model = Net()
inputs = (torch.randn(4, requires_grad=True),)

def loss(output):
    open("reached", "w").close()
    time.sleep(100)
    return output.sum()
"""
SKIPPED = """\
import torch

model = torch.nn.LSTM(4, 5)
inputs = (torch.randn(3, 2, 4),)

def loss(output):
    return output[0].sum()
"""
EVIL = MODEL.replace("h = torch.relu(h)", "h = torch.relu(h)  # \x1b[2J\u202e\x9b5m[bold]") + INPUTS
FILES = {
    "model.py": MODEL + INPUTS,
    "many.py": MODEL,
    "printing.py": PRINTING,
    "raising.py": RAISING,
    "mismatch.py": RAISING.replace('raise ValueError("bad \\x1b[31mthing")', "return y @ y"),
    "script.py": SCRIPT,
    "uncompiled.py": UNCOMPILED,
    "sleeping.py": SLEEPING,
    "evil.py": EVIL,
    "loadtime.py": "import torch\n\nmodel = torch.nn.Linear(2, 'x')\ninputs = (torch.ones(2),)\n",
    "skipped.py": SKIPPED,
    "store": "a file where a store should be\n",
}

#: One process each. They take seconds, so all of them are started ahead, two at a time.
CASES = {
    "attribute": ("many.py:large", "--input", "x=5x8:f32", "--seed", "3", "--name", "mine", "--check", "--steps", "2"),
    "no backward": ("model.py", "--no-backward", "--steps", "1", "--warmup", "0", "--quiet"),
    "dynamic": ("model.py", "--dynamic", "--steps", "0", "--warmup", "0"),
    "json": ("printing.py", "--json", "--steps", "1", "--warmup", "0", "--name", "\udcff\u202e"),
    "fullgraph": ("printing.py", "--fullgraph"),
    "raising": ("raising.py",),
    "mismatch": ("mismatch.py",),
    "loadtime": ("loadtime.py",),
    "script exit": ("script.py", "--quiet", "--", "exit", "--steps", "1"),
    "script raise": ("script.py", "--", "raise"),
    "compile name": ("uncompiled.py", "--compile", "net"),
    "evil": ("evil.py", "--steps", "1", "--warmup", "0", "--name", "\x1b[31mx"),
    "executor": ("model.py", "--executors", "torch,nope"),
    "inputs": ("many.py:large", "--input", "x=5xbad:f32"),
    "skipped": ("skipped.py", "--check", "--steps", "1", "--warmup", "0"),
    "skipped, strict": ("skipped.py", "--strict", "--steps", "1", "--warmup", "0", "--quiet"),
}


class Done:
    """One finished ``run``, its store apart from those of the others."""

    def __init__(self, process: subprocess.CompletedProcess[bytes], store: Path) -> None:
        self.code = process.returncode
        self.out = process.stdout.decode("utf-8", "backslashreplace")
        self.err = process.stderr.decode("utf-8", "backslashreplace")
        self.store = Store(store)

    @property
    def stored(self) -> StoredRun:
        return self.store.resolve("@1")

    def section(self, heading: str) -> list[list[str]]:
        """Cells of the lines under a heading."""
        blocks = [block.splitlines() for block in self.out.split("\n\n")]
        lines = next(block[1:] for block in blocks if block[0] == heading)
        return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines]


def command(folder: Path, args: tuple[str, ...], **changes: str) -> dict[str, object]:
    return {
        "args": [sys.executable, "-m", "thunderfx_cli", "run", *args],
        "cwd": folder,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "env": environment(OMP_NUM_THREADS="1", **changes),
    }


def at_once(folder: Path, *args: str, code: int) -> str:
    """Stderr of a command that ends before torch is imported."""
    done = subprocess.run(timeout=60, **command(folder, args, THUNDERFX_HOME=str(folder / "unused")))
    assert done.returncode == code, done.stderr
    assert done.stdout == b""
    assert not (folder / "unused").exists()
    return done.stderr.decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def outcomes(folder, request):
    """What each case did; only those are run that a selected test asks for."""

    def start(name: str) -> Done:
        store = folder / "stores" / name.replace(" ", "-")
        options = command(folder, CASES[name], THUNDERFX_HOME=str(store))
        return Done(subprocess.run(timeout=200, **options), store)

    calls = [item.callspec for item in request.session.items if hasattr(item, "callspec")]
    wanted = {call.params.get("done") for call in calls}
    with ThreadPoolExecutor(2) as pool:
        yield {name: pool.submit(start, name) for name in CASES if name in wanted}


@pytest.fixture
def done(outcomes: dict[str, Future[Done]], request) -> Done:
    return outcomes[request.param].result()


def case(*names: str) -> pytest.MarkDecorator:
    """The test is given, one after the other, what these cases did."""
    return pytest.mark.parametrize("done", names, indirect=True)


@case("attribute")
def test_an_attribute_with_inputs_from_the_command_line(done):
    assert (done.code, done.err) == (0, "")
    run = done.stored.run
    assert (run.name, run.target, run.mode, run.status) == ("mine", "many.py:large", "model", "complete")
    assert (run.options["inputs"], run.options["seed"], run.options["steps"]) == ("x=5x8:f32", 3, 2)
    assert run.check is not None and run.check.ok
    (graph,) = run.subgraphs
    assert "x: cpu f32[5, 8]" in graph.inputs
    assert graph.code == "forward (many.py:10)"
    assert len(run.timings["step"].samples_ms) == 2
    (backward,) = done.stored.traces("backward")
    assert any(origin.source == "h = torch.relu(h)" for origin in done.stored.load_trace(backward[1]).origins)


@case("attribute")
def test_the_summary_for_a_reader(done):
    run = done.stored.run
    (graph,) = run.subgraphs
    assert done.out.startswith(f"cpu | {run.environment.device_name} | torch {run.environment.torch} | python ")
    _, row, breaks = done.section("Subgraphs")
    assert row[:3] == ["0", "forward (many.py:10)", f"{graph.forward_lines}/{graph.backward_lines}"]
    assert breaks == ["graph breaks: none"]
    times = {row[0]: row[1:] for row in done.section("Time")[1:-1]}
    assert list(times) == ["first call", "first backward", "forward", "backward", "step"]
    assert [times[name][-1] for name in times] == ["1", "1", "2", "2", "2"]
    assert ["NVML: not asked, the run is on the CPU"] in done.section("Memory")
    assert done.section("Check against eager")[0] == ["passed"]
    assert done.out.endswith(f"\nrun {run.id} (mine)\nnext: thunderfx traces --backward\n      thunderfx diff\n")
    assert "\x1b" not in done.out


@case("attribute")
def test_a_step_is_its_forward_and_backward(done):
    """What is measured besides costs no time of the step."""
    times = done.stored.run.timings
    assert set(times) == {"import", "load", "first_call", "first_backward", "forward", "backward", "step"}
    parts = zip(times["step"].samples_ms, times["forward"].samples_ms, times["backward"].samples_ms, strict=True)
    assert min(step - forward - backward for step, forward, backward in parts) < 0.1


@case("no backward")
def test_quiet_prints_the_id_and_without_backward_there_is_none(done):
    assert (done.code, done.err) == (0, "")
    assert done.out == f"{done.stored.run.id}\n"
    run = done.stored.run
    assert list(done.stored.traces("backward")) == []
    assert (run.subgraphs[0].backward_lines, run.subgraphs[0].saved_for_backward_bytes) == (0, None)
    assert "backward" not in run.timings and "first_backward" not in run.timings
    assert run.warnings == ()


@case("dynamic")
def test_no_timed_steps_and_symbolic_sizes(done):
    assert (done.code, done.err) == (0, "")
    run = done.stored.run
    assert run.options["dynamic"] is True
    assert len(run.subgraphs) == 1  # Dynamo started over, and what it gave up is no subgraph
    assert any("s" in line.rsplit("[", 1)[-1] for line in run.subgraphs[0].inputs), run.subgraphs[0].inputs
    assert not {"forward", "backward", "step"} & set(run.timings)
    assert run.memory.readings["rss_bytes"].value


@case("json")
def test_json_is_all_of_stdout(done):
    assert done.code == 0
    assert done.out.isascii()
    run = json.loads(done.out)
    assert run["id"] == done.stored.run.id
    assert run["name"] == done.stored.run.name == "\\udcff\u202e"
    assert done.err.splitlines()[:2] == ["loading", "in forward"]


@case("skipped")
def test_a_model_that_dynamo_skips_is_not_called_checked(done):
    assert done.code == 3
    assert "warning: nothing was compiled, the model ran in eager: TorchDynamo made no graph of it (" in done.out
    assert done.section("Check against eager") == [["FAILED"], ["not checked: nothing was compiled"]]


@case("skipped, strict")
def test_a_model_that_dynamo_skips_fails_under_strict(done):
    assert done.code == 1
    assert done.err.startswith("error: --strict: TorchDynamo made no graph of the model, which ran in eager\n")
    assert done.stored.run.status == "failed"


@case("json")
def test_a_graph_break_has_its_reason_and_line(done):
    run = done.stored.run
    assert [graph.index for graph in run.subgraphs] == [0, 1]
    (found,) = run.graph_breaks
    assert (Path(found.file).name, found.line, found.source) == ("printing.py", 8, 'print("in forward")')
    assert "print" in found.reason


@case("fullgraph")
def test_a_graph_break_under_fullgraph_fails(done):
    assert done.code == 1
    assert "\n  at printing.py:8\n" in done.err
    assert "print" in done.err and "\n  try: " in done.err
    assert done.store.entries() == []


@pytest.mark.parametrize(
    ("done", "message", "place"),
    [
        ("raising", "ValueError: bad \\x1b[31mthing", "raising.py:7"),
        ("mismatch", "RuntimeError: ", "mismatch.py:7"),
        ("loadtime", "TypeError: ", "loadtime.py:3"),
    ],
    indirect=["done"],
)
def test_an_error_of_the_model_is_its_message_and_place(done, message, place):
    assert (done.code, done.out) == (1, "")
    first, *others = done.err.splitlines()
    assert first.startswith(f"error: {message}")
    assert others[-1] == f"  at {place}"
    assert len(others) <= 8 and "Traceback" not in done.err and "torch/_" not in done.err
    assert list(done.store.runs.iterdir()) == []


@case("script exit")
def test_a_script_that_fails_is_stored_as_failed(done):
    assert done.code == 1
    assert done.out == f"{done.stored.run.id}\n"
    assert done.err == "arguments ['exit', '--steps', '1']\nerror: script.py ended with exit code 7\n"
    run = done.stored.run
    assert (run.mode, run.status, run.error) == ("script", "failed", "script.py ended with exit code 7")
    assert run.subgraphs[0].backward_status == "ran"


@case("script raise")
def test_a_script_that_raises_keeps_what_it_measured(done):
    assert done.code == 1
    assert done.out.startswith("arguments ['raise']\n")
    assert "\nrun failed: KeyError: 'lost'\n" in done.out
    assert done.err == "error: KeyError: 'lost'\n  at script.py:7\n"
    assert list(done.stored.run.timings) == ["import", "first_call", "script"]
    assert len(list(done.stored.traces())) == 2


@case("compile name")
def test_a_script_that_compiles_nothing_can_be_told_what_to_compile(done):
    assert (done.code, done.err) == (0, "")
    (graph,) = done.stored.run.subgraphs
    assert any(line.endswith("f32[4, 3]") for line in graph.inputs)


@case("evil")
def test_text_of_the_users_file_is_shown_harmlessly(done):
    assert (done.code, done.err) == (0, "")
    assert " (\\x1b[31mx)\n" in done.out
    args = [sys.executable, "-m", "thunderfx_cli"]
    shown = done.out
    for view in (["traces"], ["traces", "--json"], ["diff", "@1", "@1"], ["runs"]):
        where = ["--store", str(done.store.root)]
        shown += subprocess.run([*args, *view, *where], capture_output=True, text=True, check=True).stdout
    assert "h = torch.relu(h)  # \\x1b[2J\\u202e\\x9b5m[bold]\n" in shown
    assert "traces: no differences" in shown
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)


@pytest.mark.parametrize(
    ("done", "message"),
    [("executor", "error: --executors: "), ("inputs", "error: --input ")],
    indirect=["done"],
)
def test_options_that_cannot_be_met(done, message):
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(message)
    assert list(done.store.runs.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("modle.py",), "error: modle.py: no such file\n  try: Did you mean model.py?\n"),
        (("script.py", "--check"), "error: --check needs a model: a script runs its own steps\n"),
        (
            ("script.py", "--steps", "3", "--seed", "1"),
            "error: --steps, --seed: for a model only, and script.py is a script",
        ),
        (("model.py", "--", "--width", "3"), "error: arguments after -- go to a script, and this target is a model\n"),
        (("model.py", "--steps", "-1"), "Usage: "),
        ((), "Usage: "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_usage_errors_come_at_once(folder, args, message):
    assert at_once(folder, *args, code=2).startswith(message)


def test_a_store_that_cannot_be_written_is_told_before_anything_runs(folder):
    error = at_once(folder, "sleeping.py", "--store", "store", code=4)
    assert error.startswith(f"error: cannot write to the store {folder / 'store'}: ")
    assert not (folder / "reached").exists()


@pytest.mark.parametrize("text", [b"def f(:\n", b"x = 1\n  y = 2\n", b"x = '\xff'\n", b"\0"], ids=["f", "y", "x", "0"])
def test_a_file_that_is_not_python(folder, text):
    (folder / "broken.py").write_bytes(b"import torch\n" + text)
    error = at_once(folder, "broken.py", code=1)
    assert "  at broken.py" in error
    assert "Traceback" not in error


def test_an_interrupt_in_the_first_step_stores_what_was_compiled(folder):
    store = Store(folder / "stores" / "interrupted")
    options = command(folder, ("sleeping.py",), THUNDERFX_HOME=str(store.root))
    process = subprocess.Popen(
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )
    end = time.monotonic() + 100
    while not (folder / "reached").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, b"")
    run = store.resolve("@1").run
    assert run.status == "interrupted"
    assert b"run interrupted\n" in out
    assert run.subgraphs[0].forward_lines == 1
    assert [path.name for path in store.runs.iterdir()] == [run.id]
