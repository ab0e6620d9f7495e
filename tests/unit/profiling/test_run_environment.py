"""What a run records of its surroundings."""

import json
import shutil
import subprocess

import pytest
import torch
from thunderfx.profiling.environment import cpu_name, describe, git_state

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_cpu_environment(tmp_path):
    facts = describe("cpu", tmp_path)
    assert list(facts) == [
        "python", "torch", "platform", "device", "device_name", "driver", "cuda", "threads", "git_commit", "git_dirty",
    ]  # fmt: skip
    assert facts["torch"] == torch.__version__
    assert facts["device"] == "cpu"
    assert facts["device_name"]
    assert facts["driver"] is None and facts["cuda"] is None
    assert facts["threads"] == torch.get_num_threads()
    assert json.loads(json.dumps(facts)) == facts


def test_cpu_name_from_cpuinfo(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Acme 9000 @ 2: GHz\nprocessor\t: 1\nmodel name\t: other\n")
    assert cpu_name(cpuinfo) == "Acme 9000 @ 2: GHz"
    assert cpu_name(tmp_path / "absent")


@needs_git
def test_git_commit_and_dirty(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state(tmp_path) == (None, None)
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) == (None, False)  # a repository before its first commit
    (tmp_path / "a.py").write_text("x = 1\n")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_state(tmp_path) == (commit, False)
    (tmp_path / "a.py").write_text("x = 2\n")
    assert git_state(tmp_path) == (commit, True)


def test_no_git_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) == (None, None)
    assert git_state(tmp_path / "absent") == (None, None)
