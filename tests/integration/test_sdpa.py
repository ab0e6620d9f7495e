"""The sdpa executor: attention is one line in each direction, with eager's values and random numbers."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
import torch.nn.functional as F
from observe import observe
from thunderfx import thunderfx
from thunderfx.trace.bound_symbol import DEL

CASES = [
    (heads, lengths, dtype, mask, dropout, causal)
    for heads, lengths, dtype, mask, dropout, causal in itertools.product(
        [(4, 4), (4, 2)],
        [(8, 8), (5, 9)],
        [torch.float32, torch.bfloat16],
        ["none", "float", "learned", "bool"],
        [0.0, 0.3, 1.0],
        [False, True],
    )
    if not (causal and mask != "none")
]


def attention(heads, lengths, dtype, mask, dropout, causal):
    """``q`` with ``heads[0]`` heads, ``k`` and ``v`` with ``heads[1]``."""

    def make():
        (ours, theirs), (length, keys) = heads, lengths
        q = torch.randn(2, ours, length, 16, dtype=dtype, requires_grad=True)
        k, v = (torch.randn(2, theirs, keys, size, dtype=dtype, requires_grad=True) for size in (16, 8))
        masks = {
            "none": None,
            "float": torch.randn(length, keys, dtype=dtype),
            "learned": torch.randn(2, 1, length, keys, dtype=dtype, requires_grad=True),
            "bool": torch.rand(length, keys) > 0.3,
        }

        def fn(q, k, v, mask):
            return F.scaled_dot_product_attention(
                q.sin(), k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=0.3, enable_gqa=ours != theirs
            )

        return fn, (q, k, v, masks[mask])

    return make


def lines(trace):
    return [line for line in trace.bound_symbols if line.symbol != DEL]


@pytest.mark.parametrize("start", range(8))
def test_like_eager(start):
    for case in CASES[start::8]:
        torch._dynamo.reset()
        make, made = attention(*case), []

        def compiled(fn, made=made):
            made.append(thunderfx(fn, executors=["sdpa"], strict=True))
            return made[-1]

        want, got = observe(make, lambda fn: fn, 2), observe(make, compiled, 2)
        tolerance = 2e-5 if case[2] is torch.float32 else 4e-2
        for expected, found in zip(want, got, strict=True):
            if isinstance(expected, tuple):
                expected, found = expected[1], found[1]
            if expected is None or found is None:
                assert expected is found
                continue
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True, msg=str(case))
        for trace in (made[0].last_traces[0], made[0].last_backward_traces[0]):
            claimed = [line for line in lines(trace) if line.executor == "sdpa"]
            assert len(claimed) == 1, str(trace)
            assert not any("softmax" in line.symbol or "bmm" in line.symbol for line in lines(trace))


def test_the_kernel_is_shown():
    torch._dynamo.reset()
    q = torch.randn(1, 2, 4, 8, requires_grad=True)
    compiled = thunderfx(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), executors=["sdpa"])
    compiled(q)
    assert re.search(r"\[sdpa, (random, )?flash\]", str(compiled.last_traces[0]))
    compiled = thunderfx(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), executors=["sdpa"])
    compiled(q).sum().backward()
    assert "[sdpa, random, math]" in str(compiled.last_traces[0])
    assert "attention_backward" in str(compiled.last_backward_traces[0])


def test_sizes_that_are_not_known_and_other_ranks_are_left_to_torch():
    torch._dynamo.reset()
    compiled = thunderfx(lambda q: F.scaled_dot_product_attention(q, q, q, dropout_p=0.5), executors=["sdpa"])
    q = torch.randn(2, 4, 8)
    torch.manual_seed(0)
    want = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(q), want)
    assert compiled.fallbacks == []


def test_the_operators_pass_torchs_own_checks():
    from thunderfx.executors import attention as module

    q, k = torch.randn(2, 4, 5, 8, requires_grad=True), torch.randn(2, 2, 6, 8, requires_grad=True)
    mask = torch.randn(5, 6, requires_grad=True)
    torch.library.opcheck(module.attention, (q, k, k, mask, 0.0, False, None))
    torch.library.opcheck(module.attention, (q, k, k, None, 0.0, True, 0.5))


def test_a_stored_trace_runs_again():
    from thunderfx.trace import from_json, to_json

    torch._dynamo.reset()
    q = torch.randn(1, 2, 4, 8)
    mask = torch.randn(4, 4, requires_grad=True)
    compiled = thunderfx(lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m), executors=["sdpa"])
    out = compiled(q, mask)
    trace = from_json(to_json(compiled.last_traces[0]))
    torch.testing.assert_close(trace.python_callable()(q, mask)[0], out)
    assert "import thunderfx.executors.attention\n" in trace.python()
