from __future__ import annotations

import subprocess
import sys

import pytest

from thunderfx_cli.errors import UserCodeError
from thunderfx_cli.loading.mode import defined_names, detect_mode
from thunderfx_cli.loading.source import parse_source

GUARD = 'if __name__ == "__main__":\n    main()\n'


@pytest.mark.parametrize(
    "source",
    [
        "model = Net()",
        "def model(): return Net()",
        "class Model(Module): pass",
        "from nets import build as model",
        "import nets.model as model",
        "try:\n    model = fast()\nexcept ImportError:\n    model = slow()",
        "model: Module = Net()",
        "net, model = pair()",
        "model = Net()\ninputs = x\nmodel = torch.compile(model)",
        "def train(model): model(x).backward()\nmodel = Net()",
    ],
)
def test_model_files(source: str) -> None:
    assert detect_mode(source, "f.py", None) == "model"


@pytest.mark.parametrize(
    "source",
    [
        "",
        "print(1)",
        "net = Net()",
        "def f():\n    model = Net()",
        "class A:\n    model = 1",
        "model: Module",
        "[model for model in models]",
        "model = Net()\n" + GUARD,
        "model = Net()\nif '__main__' == __name__ and ready:\n    main()",
        "model = torch.compile(Net())\nmodel(x)",
        "from thunderfx import thunderfx\nmodel = thunderfx(Net())",
        "model = Net()\nfor x in data:\n    model(x).sum().backward()",
    ],
)
def test_scripts(source: str) -> None:
    assert detect_mode(source, "f.py", None) == "script"


def test_attribute_or_inputs_ask_for_the_model() -> None:
    assert detect_mode(GUARD, "f.py", "Net") == "model"
    assert detect_mode(GUARD, "f.py", None, input_specs=["x=4"]) == "model"


def test_defined_names() -> None:
    source = "import a.b, c as d\nx: int\nx = 1\nwith f() as g:\n    h = 1\nclass K:\n    z = 1\n(w := 2)"
    assert defined_names(parse_source(source, "f.py")) == {"a", "d", "x", "g", "h", "K", "w"}


def test_syntax_error_shows_line_and_caret() -> None:
    with pytest.raises(UserCodeError) as caught:
        detect_mode("x = 1\nif x:\n    y = = 2\n", "f.py", "attr")
    assert caught.value.where == "f.py:3"
    assert caught.value.message == "SyntaxError: invalid syntax\n    y = = 2\n        ^"
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("source", [b"a\0b", b"# coding: foo\n", b"\xff\xfe=1", b"x = '\xe9'", b"(" * 500])
def test_source_that_cannot_be_read(source: bytes) -> None:
    with pytest.raises(UserCodeError) as caught:
        detect_mode(source, "f.py", None)
    assert caught.value.where.startswith("f.py")


def test_coding_line_and_byte_order_mark_are_applied() -> None:
    assert detect_mode(b"# coding: latin-1\nmodel = '\xe9'", "f.py", None) == "model"
    assert detect_mode(b"\xef\xbb\xbfmodel = 1", "f.py", None) == "model"


def test_loading_does_not_import_torch() -> None:
    modules = ["target", "mode", "source", "inputs", "model", "rewrite", "capture", "script", "user_errors"]
    imports = "; ".join(f"import thunderfx_cli.loading.{module}" for module in modules)
    subprocess.run([sys.executable, "-c", f"{imports}; import sys; assert 'torch' not in sys.modules"], check=True)
