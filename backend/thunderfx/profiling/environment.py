"""Where a run took place: versions, device, threads, and the state of the user's git repository."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thunderfx.profiling.nvml import driver_version

if TYPE_CHECKING:
    import torch

GIT_TIMEOUT_S = 5.0


def describe(device: str | torch.device, folder: str | Path | None = None) -> dict[str, Any]:
    """JSON-ready facts about this process on `device`; None where a fact cannot be found out.

    `git_commit` and `git_dirty` (untracked files count) are those of the repository around `folder`, default the
    working directory. `driver` and `cuda` are None on a CPU device: they had no part in the run.
    """
    import torch

    on_cuda = str(device).partition(":")[0] == "cuda"
    commit, dirty = git_state(Path.cwd() if folder is None else Path(folder))
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "platform": platform.platform(),
        "device": str(device),
        "device_name": torch.cuda.get_device_name(device) if on_cuda else cpu_name(),
        "driver": driver_version() if on_cuda else None,
        "cuda": torch.version.cuda if on_cuda else None,
        "threads": torch.get_num_threads(),
        "git_commit": commit,
        "git_dirty": dirty,
    }


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's model name; the machine type where the system tells no more (Arm's cpuinfo has no name)."""
    try:
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    except OSError:
        pass  # not Linux: the platform module answers
    return platform.processor() or platform.machine()


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit and whether the tree differs from it; None each where there is no git, no repository or no answer."""
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    status = _git(folder, "status", "--porcelain")
    return commit or None, None if status is None else bool(status)


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # never lock the index of a user who works meanwhile
            capture_output=True,
            text=True,
            errors="replace",
            timeout=GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
