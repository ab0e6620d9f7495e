"""What was alive when memory ran out, found in the frames that the error passed through.

No instrumentation is needed: in the frame of a compiled program its values lie under their names in the trace.
"""

from __future__ import annotations

import linecache
import os
import re
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from thunderfx.codegen import trace_at
from thunderfx.profiling.allocations.alive import Alive, alive_tensors, storage_of
from thunderfx.profiling.allocations.model import Held, OutOfMemory, Place
from thunderfx.profiling.allocations.peak import grouped, largest
from thunderfx.profiling.allocations.recorder import Program, is_gradient, saved_names
from thunderfx.profiling.allocations.roles import Roles, place_of
from thunderfx.profiling.allocations.saved import Storages

#: c10/core/impl/alloc_cpu.cpp
_CPU = re.compile(r"(?:not enough|can't allocate) memory: you tried to allocate (\d+) bytes")
#: c10/cuda/CUDACachingAllocator.cpp
_CUDA = re.compile(r"Tried to allocate (\d+(?:\.\d+)?) ([KMG]iB|bytes)")
#: Of torch and of this package.
_FOLDERS = (os.path.dirname(str(torch.__file__)), str(Path(__file__).parents[2]))
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def memory_error(error: BaseException) -> BaseException | None:
    """The error of an allocator among ``error`` and what led to it."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, torch.OutOfMemoryError) or (isinstance(link, RuntimeError) and _CPU.search(str(link))):
            return link
        link = link.__cause__ or link.__context__
    return None


def picture(
    error: BaseException,
    infos: Sequence[Any],
    named: Iterable[tuple[str, str, torch.Tensor]],
    device: torch.device,
    skip: Sequence[str] = (),
) -> OutOfMemory:
    """The moment before ``error``, which :func:`memory_error` found and whose traceback is still there.

    ``skip`` names folders whose frames are not the user's, besides torch's and ours.

    What only autograd holds, such as what earlier subgraphs saved, is found by nobody: on CUDA it is the difference
    to ``allocated_bytes``.
    """
    on_cuda = device.type == "cuda"
    allocated = torch.cuda.memory_allocated(device) if on_cuda else None
    reserved = torch.cuda.memory_reserved(device) if on_cuda else None
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    lines = {id(frame): number for frame, number in traceback.walk_tb(error.__traceback__)}
    programs = _programs(infos)
    ours = ("<", *(folder.rstrip(os.sep) + os.sep for folder in (*_FOLDERS, *skip)))
    held: dict[int, Held] = {}
    place = Place()
    before = {item.pointer: item for item in alive_tensors(device, named)}
    for frame in frames:
        found = _program_frame(frame, lines[id(frame)], programs)
        if found is not None:
            number, line = found
            place = place_of(programs[number], line) if line is not None else place
            _take_program(frame, number, programs, before, held)
        elif not frame.f_code.co_filename.startswith(ours):
            if place.subgraph is None:
                place = _user_place(frame, lines[id(frame)])
            _take_locals(frame, before, held)
    every = [*(_before(item) for item in before.values() if item.pointer not in held), *held.values()]
    if allocated is not None and allocated > sum(item.bytes for item in every):
        every.append(Held("unnamed", allocated - sum(item.bytes for item in every)))
    return OutOfMemory(
        message=str(error).strip().splitlines()[0],
        asked_bytes=_asked(str(error)),
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        phase=place.direction,
        place=place,
        held_bytes=sum(item.bytes for item in every),
        groups=grouped(every),
        tensors=largest(every),
    )


def _asked(text: str) -> int | None:
    found = _CPU.search(text)
    if found:
        return int(found[1])
    found = _CUDA.search(text)
    return int(float(found[1]) * _UNITS[found[2]]) if found else None


def _programs(infos: Sequence[Any]) -> list[Program]:
    return [
        Program(number, direction, trace)
        for number, info in enumerate(infos)
        for direction in ("forward", "backward")
        if (trace := info.trace(direction)) is not None
    ]


def _program_frame(frame: FrameType, lineno: int, programs: Sequence[Program]) -> tuple[int, int | None] | None:
    """The program that runs in ``frame``, and its line."""
    found = trace_at(frame.f_code.co_filename, lineno)
    if found is None:
        return None
    trace, line = found
    return next(((number, line) for number, program in enumerate(programs) if program.trace is trace), None)


def _take_program(
    frame: FrameType, number: int, programs: Sequence[Program], before: dict[int, Alive], held: dict[int, Held]
) -> None:
    """The values of a running program, by what they are to it."""
    program = programs[number]
    roles = Roles(programs)
    storages = Storages(program.trace)
    inputs = {var.name: var for var in program.trace.inputs}
    forward = next((item for item in programs if item.subgraph == program.subgraph), program)
    in_forward = Storages(forward.trace)
    taken = [var.name for var in program.trace.inputs if not is_gradient(var.name, var.source)]
    origin = dict(zip(taken, saved_names(forward.trace, program.trace), strict=False)) if forward != program else {}
    for name, value in frame.f_locals.items():
        place = storage_of(value)
        if place is None or place[0] in held or before.get(place[0], _UNNAMED).kind != "unnamed":
            continue
        kind_of = storages.types.get(name)
        text = str(kind_of) if kind_of is not None else ""
        root = storages.roots.get(name, name)
        if root in inputs:
            made = origin.get(root, "")
            line = in_forward.made_by.get(in_forward.roots.get(made, made)) if made else None
            where = place_of(forward, line) if line is not None else Place(program.subgraph, program.direction)
            kind = "inputs" if line is None else "saved for backward"
            held[place[0]] = Held(kind, place[1], name if line is None else made, text, where)
        else:
            kind, shown = roles.of([(number, name, text)])
            where = place_of(program, storages.made_by[root]) if root in storages.made_by else Place()
            held[place[0]] = Held(kind, place[1], shown, text, where)


_UNNAMED = Alive(0, 0, "unnamed", "", "")


def _take_locals(frame: FrameType, before: dict[int, Alive], held: dict[int, Held]) -> None:
    """Tensors that a frame of eager code holds."""
    for name, value in frame.f_locals.items():
        place = storage_of(value)
        if place is not None and place[0] in before and before[place[0]].kind == "unnamed" and place[0] not in held:
            item = before[place[0]]
            where = Place(file=frame.f_code.co_filename, number=frame.f_lineno, symbol=frame.f_code.co_name)
            held[place[0]] = Held("outside the subgraphs", item.bytes, name, item.type, where)


def _before(item: Alive) -> Held:
    module = item.name.removeprefix("gradient of ").rpartition(".")[0]
    return Held(item.kind, item.bytes, item.name, item.type, Place(module=module))


def _user_place(frame: FrameType, lineno: int) -> Place:
    file = frame.f_code.co_filename
    return Place(file=file, number=lineno, source=linecache.getline(file, lineno).strip())
