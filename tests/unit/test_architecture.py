"""Dependencies point one way (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Package -> packages of ours that it may import.
ALLOWED = {
    "thunderfx.trace": set(),
    "thunderfx.codegen": {"thunderfx.trace"},
    "thunderfx.executors": {"thunderfx.trace", "thunderfx.lowering"},
    "thunderfx.passes": {"thunderfx.trace", "thunderfx.executors"},
    "thunderfx.lowering": {"thunderfx.trace", "thunderfx.codegen"},
    "thunderfx.profiling": {"thunderfx.trace", "thunderfx.codegen"},
    "thunderfx.dynamo": {
        "thunderfx.trace",
        "thunderfx.codegen",
        "thunderfx.executors",
        "thunderfx.passes",
        "thunderfx.lowering",
    },
    "thunderfx_cli.store": {"thunderfx.trace", "thunderfx.profiling"},
    "thunderfx_cli.render": {"thunderfx.trace", "thunderfx.profiling", "thunderfx_cli.store"},
}


def _imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            found.add(node.module or "")
    return {".".join(name.split(".")[:2]) for name in found if name.split(".")[0] in ("thunderfx", "thunderfx_cli")}


def _folder(package: str) -> Path:
    base = ROOT / "backend" if package.startswith("thunderfx.") else ROOT
    return base / package.replace(".", "/")


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_lies_below_it(package):
    for file in sorted(_folder(package).glob("**/*.py")):
        beyond = (
            _imports(file)
            - ALLOWED[package]
            - {package, "thunderfx_cli.errors", "thunderfx_cli.comparison", "thunderfx_cli.history"}
        )
        if file.name == "trace.py" and package == "thunderfx.trace":
            beyond -= {"thunderfx.codegen"}  # python_callable() runs a trace: imported inside that function alone
        assert not beyond, f"{file.relative_to(ROOT)} imports {', '.join(sorted(beyond))}"


def test_the_library_never_imports_the_command_line():
    for file in (ROOT / "backend").glob("**/*.py"):
        assert not any(name.startswith("thunderfx_cli") for name in _imports(file)), file
