"""A fixed quarter of torch's operator database; ``make opinfo`` runs all of it."""

from __future__ import annotations

import compare
import pytest
from thunderfx import thunderfx


@pytest.mark.parametrize("entry", compare.default_quarter(), ids=str)
def test_behaves_as_in_eager(entry):
    assert compare.failure(entry, thunderfx, most=2) is None
