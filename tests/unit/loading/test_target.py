from __future__ import annotations

from pathlib import Path

import pytest

from thunderfx_cli.errors import UsageError
from thunderfx_cli.loading.target import Target, parse_target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nanogpt.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_three_forms(folder: Path) -> None:
    assert parse_target("nanogpt.py") == Target(Path("nanogpt.py"), None, None)
    assert parse_target("nanogpt.py:GPT") == Target(Path("nanogpt.py"), None, "GPT")
    assert parse_target(f"{folder}/nanogpt.py:GPT.small") == Target(folder / "nanogpt.py", None, "GPT.small")
    assert parse_target("torchvision.models:resnet18") == Target(None, "torchvision.models", "resnet18")


def test_a_file_whose_name_has_a_colon(folder: Path) -> None:
    (folder / "a:b.py").write_text("")
    assert parse_target("a:b.py") == Target(Path("a:b.py"), None, None)


def test_missing_file_names_the_path_and_close_matches(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"nanogtp\.py: no such file") as caught:
        parse_target("nanogtp.py:model")
    assert caught.value.exit_code == 2
    assert caught.value.hint == "Did you mean nanogpt.py?"


def test_missing_suffix_is_suggested(folder: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target("nanogpt")
    assert caught.value.hint == "Did you mean nanogpt.py?"


def test_missing_folder(folder: Path) -> None:
    with pytest.raises(UsageError) as caught:
        parse_target("modles/nanogpt.py")
    assert caught.value.hint == "There is no folder modles either."


def test_directory(folder: Path) -> None:
    with pytest.raises(UsageError, match="is a directory") as caught:
        parse_target(str(folder))
    assert "nanogpt.py" in caught.value.hint


def test_module_without_attribute(folder: Path) -> None:
    with pytest.raises(UsageError, match="needs the name") as caught:
        parse_target("package.module")
    assert caught.value.hint == "Try package.module:model"


@pytest.mark.parametrize("text", ["", ":", ":model", "nanogpt.py:", "nanogpt.py:not a name", "package:1"])
def test_malformed(folder: Path, text: str) -> None:
    with pytest.raises(UsageError, match="is not a target"):
        parse_target(text)


def test_str_reads_back(folder: Path) -> None:
    for text in ("nanogpt.py", "nanogpt.py:GPT", "package.module:attr"):
        assert str(parse_target(text)) == text
