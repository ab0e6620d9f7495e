"""The ceilings of this machine, measured once and kept in the user's cache folder.

A copy of memory that no cache holds gives the bandwidth, a square matrix multiplication of each dtype the arithmetic,
an operator on one element the cost of starting one. The best of several repeats counts: a ceiling is what the device
can do, not what it did while something else ran.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from thunderfx.profiling.clock import Clock
from thunderfx.profiling.costs import Ceilings
from thunderfx.profiling.environment import cpu_name

if TYPE_CHECKING:
    import torch

_COPY_BYTES = {"cpu": 64 << 20, "cuda": 512 << 20}
#: A multiplication is made larger until one takes this long; a dtype that the device emulates stays small.
_LONG_ENOUGH_MS = 10.0
_SIZES = (256, 512, 1024, 2048, 4096, 8192)
_REPEATS = 20
_MOST_S = 0.3  #: repeats of one measurement end after this many seconds
_LAUNCHES = 50


def cache_file() -> Path:
    """``thunderfx/ceilings.json`` in the user's cache folder."""
    if "XDG_CACHE_HOME" in os.environ:
        folder = Path(os.environ["XDG_CACHE_HOME"])
    else:
        folder = Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
    return folder / "thunderfx" / "ceilings.json"


def ceilings_of(device: torch.device, achieved: Mapping[str, float], file: Path | None = None) -> Ceilings:
    """Ceilings of ``device``, of arithmetic for the dtypes in ``achieved``: FLOPs per second that lines came to.

    What the cache lacks is measured and put there, and so is what a line surpassed: something else ran while that was
    measured. A cache that is damaged is measured anew; one that cannot be written is done without.
    """
    file = cache_file() if file is None else file
    key = _key(device)
    cached = _read(file)
    known = cached.get(key, Ceilings())
    low = [dtype for dtype, rate in sorted(achieved.items()) if known.flops_per_s.get(dtype, -1.0) < rate]
    if known.copy_bytes_per_s and not low:
        return known
    rates = {dtype: max(known.flops_per_s.get(dtype, 0.0), multiplication_rate(device, dtype)) for dtype in low}
    found = Ceilings(
        max(known.copy_bytes_per_s, copy_bandwidth(device)),
        known.flops_per_s | rates,
        min(known.launch_ms or float("inf"), launch_ms(device)),
        datetime.now().astimezone().isoformat(timespec="seconds"),
    )
    _write(file, cached | {key: found})
    return found


def _key(device: torch.device) -> str:
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name()
    precision = torch.get_float32_matmul_precision()
    return f"{name} | torch {torch.__version__} | {torch.get_num_threads()} threads | float32 {precision}"


def _read(file: Path) -> dict[str, Ceilings]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Ceilings])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return {}


def _write(file: Path, ceilings: dict[str, Ceilings]) -> None:
    """Under another name first: two processes that write at once leave one whole file."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as made:
            made.write(msgspec.json.encode(ceilings))
        os.replace(made.name, file)
    except OSError:
        return  # a home that is read-only: measured again next time


def copy_bandwidth(device: torch.device) -> float:
    """Bytes read and written per second by a copy of memory that no cache holds."""
    import torch

    count = _COPY_BYTES[device.type]
    source = torch.ones(count, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2e3 * count / _best_ms(device, lambda: target.copy_(source))


def multiplication_rate(device: torch.device, dtype: str) -> float:
    """FLOPs per second of a square matrix multiplication; 0 where the device has none for ``dtype``."""
    import torch

    kind = getattr(torch, dtype)
    best, best_of_two = 0.0, False
    for size in _SIZES:
        try:
            a = torch.ones(size, size, dtype=kind, device=device)
            time_ms = _best_ms(device, functools.partial(torch.mm, a, a))
        except (RuntimeError, NotImplementedError):  # no kernel for the dtype, or no memory for the size
            break
        best = max(best, 2e3 * size**3 / time_ms)
        if time_ms > (_LONG_ENOUGH_MS if best_of_two else 10 * _LONG_ENOUGH_MS):
            break
        best_of_two = True
    return best


def launch_ms(device: torch.device) -> float:
    """Time of an operator on one element, one after the other: what a line costs that has nothing to do."""
    import torch

    one = torch.ones(1, device=device)

    def many() -> None:
        for _ in range(_LAUNCHES):
            torch.neg(one)

    return _best_ms(device, many) / _LAUNCHES


def _best_ms(device: torch.device, call: Callable[[], Any]) -> float:
    """Shortest of several calls, after one that warms up."""
    clock = Clock(device)
    call()
    best = float("inf")
    began = time.perf_counter()
    for number in range(_REPEATS):
        clock.wait()
        begin = clock.mark()
        call()
        end = clock.mark()
        clock.wait()
        best = min(best, clock.elapsed_ms(begin, end))
        if number and time.perf_counter() - began > _MOST_S:
            break
    return best
