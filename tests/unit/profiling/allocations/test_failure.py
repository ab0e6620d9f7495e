"""Which errors are an allocator's, and the state of a frame that it left."""

from __future__ import annotations

import pytest
import torch
from thunderfx import thunderfx
from thunderfx.profiling.allocations.failure import memory_error, picture

CUDA = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 8.00 GiB"


@pytest.mark.parametrize(
    ("error", "asked"),
    [
        (torch.OutOfMemoryError(CUDA), int(2.5 * 2**30)),
        (torch.OutOfMemoryError("CUDA out of memory"), None),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes. Error code 12"),
            400,
        ),
        (RuntimeError("[...] DefaultCPUAllocator: not enough memory: you tried to allocate 77 bytes."), 77),
    ],
)
def test_errors_of_allocators(error, asked):
    outer = ValueError("while it ran")
    outer.__cause__ = error
    assert memory_error(outer) is error
    assert picture(error, [], [], torch.device("cpu")).asked_bytes == asked


def test_other_errors_are_not():
    assert memory_error(RuntimeError("shapes do not match")) is None
    assert memory_error(MemoryError()) is None


def test_a_forward_that_fails_shows_its_values():
    weight = torch.randn(8, 8, requires_grad=True)
    fn = thunderfx(lambda x: ((x @ weight).relu().sum()).expand(10**7, 10**8).contiguous())
    with pytest.raises(RuntimeError) as caught:
        fn(torch.randn(4, 8))
    error = memory_error(caught.value)
    found = picture(error, fn.subgraph_infos, [("parameters", "weight", weight)], torch.device("cpu"))
    assert found.asked_bytes == 4 * 10**15
    assert (found.phase, found.place.symbol) == ("forward", "aten.clone.default")
    held = {(item.kind, item.name): item.bytes for item in found.tensors}
    assert held["parameters", "weight"] == 256
    assert held["outputs", "relu"] == 128  # nobody knows yet what the backward will want
    assert [size for (kind, _), size in held.items() if kind == "intermediates"] == [4]  # the sum
