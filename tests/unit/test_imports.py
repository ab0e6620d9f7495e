"""What only reads a run imports neither torch nor triton: each module in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Modules that may be needed to print, diff or list stored runs.
READERS = (
    "thunderfx",
    "thunderfx.trace",
    "thunderfx_cli.app",
    "thunderfx_cli.commands.diff",
    "thunderfx_cli.commands.memory",
    "thunderfx_cli.commands.history",
    "thunderfx_cli.commands.run",
    "thunderfx_cli.commands.runs",
    "thunderfx_cli.commands.traces",
    "thunderfx_cli.render.diff_view",
    "thunderfx_cli.render.memory_view",
    "thunderfx_cli.render.history_view",
    "thunderfx_cli.render.run_view",
    "thunderfx_cli.render.trace_view",
    "thunderfx_cli.store",
    "thunderfx_cli.store.archive",
)
HEAVY = ("torch", "triton", "numpy")


def heavy_after(statement: str) -> list[str]:
    """Which of ``HEAVY`` a fresh interpreter has loaded once it has run ``statement``."""
    code = f"import sys\n{statement}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("module", READERS)
def test_reading_needs_no_torch(module):
    assert heavy_after(f"import {module}") == []


def test_trace_names_of_the_package_need_no_torch():
    assert heavy_after("from thunderfx import BoundSymbol, TraceCtx") == []


def test_compiling_needs_torch():
    """The check above can fail: it sees torch where torch is needed."""
    assert "torch" in heavy_after("from thunderfx import thunderfx")
