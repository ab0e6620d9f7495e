"""Watched programs: each line is announced once, in order, with what it made."""

from __future__ import annotations

import torch
from thunderfx import thunderfx
from thunderfx.codegen import compiled
from thunderfx.trace.bound_symbol import DEL


class Recorder:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, tuple[torch.Size, ...]]] = []

    def before(self, line: int) -> None:
        self.seen.append(("before", line, ()))

    def after(self, line: int, made: tuple[torch.Tensor, ...]) -> None:
        self.seen.append(("after", line, tuple(value.shape for value in made)))


def test_a_watched_program_tells_of_each_line_and_the_original_comes_back():
    fn = thunderfx(lambda x: (x.sin() @ x.cos()).relu())
    x = torch.randn(4, 4)
    expected = fn(x)
    info = fn.subgraph_infos[0]
    trace = info.forward
    recorder = Recorder()
    original = info.programs["forward"].replace(compiled(trace, recorder))
    assert torch.equal(fn(x), expected)
    lines = [number for number, line in enumerate(trace.bound_symbols) if line.symbol != DEL]
    assert recorder.seen == [
        event for number in lines for event in (("before", number, ()), ("after", number, (torch.Size([4, 4]),)))
    ]
    info.programs["forward"].replace(original)
    count = len(recorder.seen)
    assert torch.equal(fn(x), expected)
    assert len(recorder.seen) == count


def test_backward_can_be_watched_too():
    fn = thunderfx(torch.nn.Linear(3, 2))
    x = torch.randn(5, 3)
    fn(x).sum().backward()
    info = fn.subgraph_infos[0]
    recorder = Recorder()
    info.programs["backward"].replace(compiled(info.backward, recorder))
    fn(x).sum().backward()
    made = [shapes for what, _, shapes in recorder.seen if what == "after"]
    assert (torch.Size([2, 3]),) in made  # the gradient of the weight
