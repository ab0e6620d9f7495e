"""JSON for a terminal or a pipe."""

from __future__ import annotations

import re
from typing import Any

import msgspec

#: What JSON may hold unescaped and a terminal may act on, or a pipe's encoding may lack: all of it lies in strings.
_NOT_ASCII = re.compile(r"[^\n\x20-\x7e]")


def json_text(data: Any) -> str:
    """``data`` as indented JSON in printable ASCII, so that nothing in it moves a terminal's cursor."""
    text = msgspec.json.format(msgspec.json.encode(data)).decode("utf-8")
    return _NOT_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
