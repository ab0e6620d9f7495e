"""What holds for every command: help, errors, exit codes, and a start without heavy imports."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest
from stored import environment, printed, store_run, thunderfx

COMMANDS = (
    ("run",),
    ("traces",),
    ("diff",),
    ("history",),
    ("runs",),
    *(("runs", name) for name in ("show", "rename", "rm", "prune", "export", "import")),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(command):
    text = printed(*command, "--help")
    assert text.startswith(f"Usage: python -m thunderfx_cli {' '.join(command)}")
    assert text == printed(*command, "-h")


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != ("diff",)], ids=" ".join)
def test_help_has_an_example_that_parses(command):
    example = re.search(r"Example: (thunderfx .*)", printed(*command, "--help"))
    assert example is not None
    assert example[1].split()[1 : 1 + len(command)] == list(command)


def test_help_does_not_depend_on_the_place_it_runs_in():
    plain = printed("--help")
    assert "\x1b" not in plain
    assert printed("--help", GITHUB_ACTIONS="true", FORCE_COLOR="1") == plain
    assert printed("--help", TERMINAL_WIDTH="wide") == plain


def test_version():
    assert re.fullmatch(r"thunderfx \d+\.\d+\.\d+\S*\n", printed("--version"))


@pytest.mark.parametrize(
    "args", [[], ["--nope"], ["nope"], ["traces", "--subgraph", "x"], ["runs", "rm"]], ids=" ".join
)
def test_usage_errors(args):
    done = thunderfx(*args)
    assert done.returncode == 2
    assert "Usage: " in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_an_error_has_its_traceback_on_demand(tmp_path):
    args = ("traces", "nonsense", "--store", str(tmp_path))
    plain = thunderfx(*args)
    assert plain.returncode == 4
    assert "Traceback" not in plain.stderr
    for done in (thunderfx("--debug", *args), thunderfx(*args, "--debug"), thunderfx(*args, THUNDERFX_DEBUG="1")):
        assert done.returncode == 4
        assert "Traceback" in done.stderr and "RunDataError" in done.stderr
        assert done.stderr.endswith(plain.stderr)


def test_an_error_quotes_harmlessly(tmp_path):
    store_run(tmp_path)
    done = thunderfx("traces", "--stage", "\x1b[31m\x9b", "--store", str(tmp_path))
    assert done.returncode == 2
    assert "--stage \\x1b[31m\\x9b: this run has" in done.stderr


BROKEN = """
import sys
import thunderfx_cli.store as store
def find(explicit):
    raise {error}
store.Store.find = find
from thunderfx_cli.__main__ import main
sys.argv[:] = ["thunderfx", "runs", *sys.argv[1:]]
main()
"""


def broken(error: str, *args: str) -> subprocess.CompletedProcess[str]:
    code = BROKEN.format(error=error)
    return subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, env=environment())


def test_our_own_failure_is_one_line_and_a_hint():
    done = broken("ZeroDivisionError('by zero\\x1b[31m\\nand more')")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "internal error: ZeroDivisionError: by zero\\x1b[31m",
        "  try: the same command with --debug",
    ]
    assert "Traceback" in broken("ZeroDivisionError('by zero')", "--debug").stderr


def test_an_interrupt_is_130():
    done = broken("KeyboardInterrupt")
    assert done.returncode == 130 or done.returncode == -signal.SIGINT
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["--help"], *([*name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_help_imports_neither_torch_nor_what_draws(command):
    code = (
        "import sys, runpy, atexit\n"
        "atexit.register(lambda: print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr))\n"
        "runpy.run_module('thunderfx_cli', run_name='__main__', alter_sys=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert "thunderfx_cli" in loaded
    assert not loaded & {"torch", "triton", "numpy", "rich", "pynvml", "psutil", "pygments"}
