"""The installed command, and stored runs built by hand: no model is compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from thunderfx.trace import BoundSymbol, ListArg, Origin, Ref, TensorType, TraceCtx, Variable

from thunderfx_cli.store import Store
from thunderfx_cli.store.schema import Environment, Fallback, Run, SubgraphIndex, Timing

F32 = TensorType("float32", (4, 64))
EVIL = "h = f()\x1b[31m[bold]x[/bold]\n\x9b2J"


def program(name: str, *symbols: str, source: str = "h = f(h)") -> TraceCtx:
    """A chain of unary operators."""
    lines, last = [], "x"
    for i, symbol in enumerate(symbols):
        lines.append(BoundSymbol(f"aten.{symbol}.default", (Ref(last),), outputs=(Variable(f"t{i}", F32),), origin=0))
        last = f"t{i}"
    origin = Origin("net", "f", "/home/me/model.py", 12, source)
    return TraceCtx(name, (Variable("x", F32, "x"),), tuple(lines), ListArg((Ref(last),)), (origin,))


def store_run(root: Path, *, source: str = "h = f(h)", **fields: object) -> str:
    """Subgraph 0 with all traces, 1 without backward, 2 fallen back; returns the id."""
    writer = Store(root).new_run("model.py")
    full = (
        writer.add_trace(0, "forward", "torch", program("forward", "sin", source=source)),
        writer.add_trace(0, "forward", "execution", program("forward", "sin", "cos", source=source), 0.5),
        writer.add_trace(0, "backward", "execution", program("backward", "neg", source=source), 1.5),
    )
    lone = (writer.add_trace(1, "forward", "execution", program("forward", "exp")),)
    graphs = (
        SubgraphIndex(0, full, code="forward (model.py:12)", inputs=("x: f32[4, 64]",)),
        SubgraphIndex(1, lone, replaces=0, reason=f"guard on {source}", backward_status="compiled, never ran"),
        SubgraphIndex(2, fallbacks=(Fallback("graph", "lowering", "no such op"),), backward_status="not compiled"),
    )
    defaults: dict[str, object] = {
        "created": "2026-12-01T14:22:33+01:00",
        "target": "model.py",
        "environment": Environment(device="cpu"),
        "timings": {"step": Timing((3.0, 1.0, 2.0))},
        "subgraphs": graphs,
    }
    writer.commit(Run(writer.id, **(defaults | fields)))
    return writer.id


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what steers colour, paging or the store."""
    steering = ("NO_COLOR", "FORCE_COLOR", "GITHUB_ACTIONS", "TERMINAL_WIDTH", "COLUMNS", "PAGER", "MANPAGER", "LESS")
    ours = ("THUNDERFX_HOME", "THUNDERFX_DEBUG", "PYTHONUNBUFFERED")
    return {key: value for key, value in os.environ.items() if key not in steering + ours} | changes


def thunderfx(*args: str, cwd: Path | None = None, **changes: str) -> subprocess.CompletedProcess[str]:
    """What the command did, its streams as pipes."""
    command = [sys.executable, "-m", "thunderfx_cli", *args]
    return subprocess.run(
        command,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        timeout=60,
        cwd=cwd,
        env=environment(**changes),
    )


def printed(*args: str, code: int = 0, **options: object) -> str:
    """Its stdout; it must end with ``code`` and have nothing to say on stderr where that is 0."""
    done = thunderfx(*args, **options)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert code or not done.stderr, done.stderr
    return done.stdout


def on_terminal(*args: str, keys: bytes = b"", **changes: str) -> tuple[int, str]:
    """Exit code and what a terminal of 60 columns and 24 rows got."""
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "thunderfx_cli", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(**{"TERM": "xterm-256color", **changes}),
    )
    os.close(theirs)
    os.write(ours, keys)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux: the other side is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    return process.wait(timeout=60), shown.decode("utf-8").replace("\r\n", "\n")
