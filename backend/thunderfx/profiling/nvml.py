"""What the driver says about the GPU while a run goes on: NVML sampled by a background thread.

Each quantity can be missing by itself (GB10 has no memory information, MIG no utilisation, WSL2 neither), so each is
a value or a reason. NVML's used memory is that of the whole device, all processes: neither torch's reserved nor its
allocated bytes.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from thunderfx.profiling.reading import Reading
from thunderfx.profiling.series import Series

if TYPE_CHECKING:
    import torch

JOIN_TIMEOUT_S = 5.0
"""How long `stop` waits for a query that hangs, as they can when a device falls off the bus."""

_MEMORY = "memory"
_FROM_TORCH = "torch.cuda.mem_get_info"


class _Output(NamedTuple):
    series: str
    statistic: str


_OUTPUTS = {
    "device_used_bytes": _Output(_MEMORY, "last"),
    "device_used_peak_bytes": _Output(_MEMORY, "maximum"),
    "device_total_bytes": _Output(_MEMORY, "total"),
    "device_utilisation_percent": _Output("utilisation", "mean"),
    "device_power_watts": _Output("power", "mean"),
    "temperature_celsius": _Output("temperature", "maximum"),
}


class NvmlSampler:
    """Samples one device every `interval_ms`; no method raises, a failure becomes `status` and reasons.

    `device_uuid` as `device_uuid_of` gives it, with or without "GPU-" / "MIG-" (CUDA and NVML may count devices
    differently, so an index would not do). None: the only device, or the current one of torch where CUDA is
    initialised. Memory that NVML does not tell comes from `torch.cuda.mem_get_info` if CUDA is initialised when the
    sampler starts; the reading's source says so. Memory use is bounded however long the run.
    """

    def __init__(self, device_uuid: str | None = None, interval_ms: float = 50) -> None:
        self._asked_uuid = None if device_uuid is None else str(device_uuid)
        self._interval_s = interval_ms / 1000
        self._lock = threading.Lock()  # guards what the thread writes and `readings` reads
        self._series = {output.series: Series() for output in _OUTPUTS.values()}
        self._reasons: dict[str, str] = {}
        self._total_bytes: int | None = None
        self._memory_source = ""
        self._nvml: Any = None
        self._handle: Any = None
        self._name = ""
        self._problem = "not started"
        self._lost = ""
        self._rounds = 0
        self._queries: dict[str, list[Callable[[], float]]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> NvmlSampler:
        """Take the first sample and begin; without effect while it runs."""
        if self._thread is not None:
            return self
        self._problem = self._open()
        self._queries = self._plan()
        if any(self._queries.values()):
            self._stop.clear()
            self._sample()
            self._thread = threading.Thread(target=self._loop, name="thunderfx-nvml", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> None:
        """Take the last sample and end; without effect when it does not run."""
        self._stop.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(JOIN_TIMEOUT_S)
            if thread.is_alive():
                self._lost = self._lost or f"a query did not return within {JOIN_TIMEOUT_S:g} s"
                return  # NVML is in use by the hanging query: leave it open
        self._close()

    def __enter__(self) -> NvmlSampler:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def status(self) -> str:
        """One line: what was sampled, or why nothing was."""
        with self._lock:
            if self._lost:
                text = f"NVML: device lost after {self._rounds} samples ({self._lost})"
            elif self._problem:
                text = f"NVML: {self._problem}"
            else:
                text = f"NVML: {self._rounds} samples of {self._name}, every {self._interval_s * 1000:g} ms"
            return f"{text}; memory from {_FROM_TORCH}" if self._memory_source == _FROM_TORCH else text

    def readings(self) -> dict[str, Reading]:
        """The six device quantities; utilisation and power are means over the samples, the temperature is the highest.

        `device_used_bytes` is the last sample. After the loss of the device the values are those from before it, and
        the reason says so.
        """
        with self._lock:
            return {name: self._reading(output) for name, output in _OUTPUTS.items()}

    def samples(self, name: str) -> list[float]:
        """A uniform sample of at most 512 of the raw values behind the reading `name`, not in order of time."""
        with self._lock:
            return self._series[_OUTPUTS[name].series].sample()

    def _reading(self, output: _Output) -> Reading:
        series = self._series[output.series]
        source = self._memory_source if output.series == _MEMORY else "NVML"
        if not series.count:
            return Reading(None, self._reasons.get(output.series) or self._lost or self._problem, source or "NVML")
        reason = f"device lost after {self._rounds} samples: {self._lost}" if self._lost else ""
        if output.statistic == "total":
            return Reading(self._total_bytes, reason, source)
        return Reading(
            getattr(series, output.statistic), reason, f"{source}, {output.statistic} of {series.count} samples"
        )

    def _loop(self) -> None:
        stopping = False
        while not stopping and not self._lost:
            stopping = self._stop.wait(self._interval_s)
            self._sample()

    def _sample(self) -> None:
        """One value of each quantity; a query that the device does not support is not asked again."""
        for name, candidates in self._queries.items():
            while candidates:
                try:
                    value = candidates[0]()
                except Exception as error:  # a measurement must not end the run: the reason is kept and shown
                    if self._note_failure(name, error):
                        return
                    if not _is_permanent(error):
                        break
                    candidates.pop(0)
                    continue
                with self._lock:
                    self._series[name].add(value)
                break
        with self._lock:
            self._rounds += 1

    def _note_failure(self, name: str, error: Exception) -> bool:
        """Keep the reason; True if the device is gone and nothing more can be asked."""
        with self._lock:
            self._reasons[name] = describe_error(error)
            if self._handle is not None and _code_name(error) in _LOST:
                self._lost = describe_error(error)
            return bool(self._lost)

    def _plan(self) -> dict[str, list[Callable[[], float]]]:
        """The queries of each quantity, the preferred one first."""
        cuda = self._torch_queries()
        if self._handle is None:
            return {_MEMORY: cuda}
        nvml, handle = self._nvml, self._handle
        return {
            # version 1 counts the memory reserved by the driver as used, version 2 (and nvidia-smi) does not
            _MEMORY: [self._memory_v2, self._memory_v1, *cuda],
            "utilisation": [lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu],
            "power": [lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000],  # milliwatts
            "temperature": [lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)],
        }

    def _memory_v2(self) -> float:
        info = self._nvml.nvmlDeviceGetMemoryInfo(self._handle, version=self._nvml.nvmlMemory_v2)
        return self._used(info.used, info.total, "NVML memory v2")

    def _memory_v1(self) -> float:
        info = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        return self._used(info.used, info.total, "NVML memory v1 (driver's reserve included)")

    def _torch_queries(self) -> list[Callable[[], float]]:
        """The query of torch, if its CUDA is in use; its index is fixed now: each thread has its own current device."""
        torch = _initialised_cuda()
        if torch is None:
            return []
        try:
            index = _torch_index(torch, self._asked_uuid)
        except Exception as error:  # no fallback then, and the reason is kept
            self._reasons[_MEMORY] = describe_error(error)
            return []

        def used() -> float:
            free, total = torch.cuda.mem_get_info(index)
            return self._used(total - free, total, _FROM_TORCH)

        return [used]

    def _used(self, used: int, total: int, source: str) -> float:
        with self._lock:
            self._total_bytes = total
            self._memory_source = source
        return used

    def _open(self) -> str:
        """Initialise NVML and find the device; the problem in words, "" if there is none."""
        try:
            import pynvml
        except ImportError:
            return "the module pynvml is missing (pip install nvidia-ml-py)"
        try:
            pynvml.nvmlInit()
        except Exception as error:  # whatever a broken driver does, the run goes on without NVML
            return describe_error(error)
        self._nvml = pynvml
        try:
            self._handle = self._find_device(pynvml)
            self._name = _text(pynvml.nvmlDeviceGetName(self._handle))
        except LookupError as error:
            return str(error.args[0])
        except Exception as error:
            if self._handle is None:
                return describe_error(error)
            self._name = "a device without a name"
        return ""

    def _find_device(self, nvml: Any) -> Any:
        uuid = self._asked_uuid or _current_uuid()
        if uuid is not None:
            return _handle_by_uuid(nvml, uuid)
        count = nvml.nvmlDeviceGetCount()
        if count != 1:
            raise LookupError(
                f"{count} devices and no UUID to choose one by" if count else "the driver knows no device"
            )
        return nvml.nvmlDeviceGetHandleByIndex(0)

    def _close(self) -> None:
        nvml, self._nvml, self._handle = self._nvml, None, None
        if nvml is None:
            return
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass  # a lost device also fails here; the process keeps nothing that matters


def device_uuid_of(device: str | torch.device) -> str | None:
    """The UUID under which NVML knows a CUDA device of torch; None for any other device. Initialises CUDA."""
    import torch

    if torch.device(device).type != "cuda":
        return None
    return str(torch.cuda.get_device_properties(device).uuid)


def driver_version() -> str | None:
    """Version of the NVIDIA driver; None without one."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            return _text(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


_LOST = (
    "NVML_ERROR_GPU_IS_LOST",
    "NVML_ERROR_RESET_REQUIRED",
    "NVML_ERROR_UNINITIALIZED",
    "NVML_ERROR_DRIVER_NOT_LOADED",
)
_PERMANENT = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
)
_WORDS = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "no driver (libnvidia-ml.so.1 not found)",
    "NVML_ERROR_DRIVER_NOT_LOADED": "no driver (its kernel module is not loaded)",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "driver and NVML library differ in version (reload the driver or reboot)",
    "NVML_ERROR_NO_PERMISSION": "no permission to ask the driver",
    "NVML_ERROR_NOT_SUPPORTED": "not supported by this device",
    "NVML_ERROR_GPU_IS_LOST": "GPU is lost",
}


def describe_error(error: Exception) -> str:
    """The error in words for a user, on one line."""
    text = _WORDS.get(_code_name(error)) or f"{type(error).__name__}: {error}"
    return " ".join(text.split())


def _code_name(error: Exception) -> str:
    """The NVML constant of the error's code, "" for errors that are not NVML's."""
    nvml = sys.modules.get("pynvml")
    if nvml is None or not isinstance(error, nvml.NVMLError):
        return ""
    return next((name for name in (*_WORDS, *_LOST, *_PERMANENT) if getattr(nvml, name) == error.value), "")


def _is_permanent(error: Exception) -> bool:
    """Whether asking again is of no use; a timeout or a busy driver may pass."""
    nvml = sys.modules.get("pynvml")
    return nvml is None or not isinstance(error, nvml.NVMLError) or _code_name(error) in _PERMANENT


def _handle_by_uuid(nvml: Any, uuid: str) -> Any:
    """The device with that UUID; torch leaves out the prefix that NVML wants, and a MIG instance has its own."""
    names = [uuid] if uuid.startswith(("GPU-", "MIG-")) else [f"GPU-{uuid}", f"MIG-{uuid}"]
    for name in names:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(name)
        except nvml.NVMLError as error:
            if error.value not in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
                raise
    raise LookupError(f"no device with UUID {' or '.join(names)}")


def _initialised_cuda() -> Any:
    """torch if its CUDA is in use in this process, else None; never loads or initialises anything itself."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_initialized() else None


def _current_uuid() -> str | None:
    torch = _initialised_cuda()
    return None if torch is None else str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _torch_index(torch: Any, uuid: str | None) -> int:
    """torch's index of the device; raises LookupError if torch does not see it."""
    if uuid is None:
        return int(torch.cuda.current_device())
    bare = uuid.removeprefix("GPU-").removeprefix("MIG-")
    for index in range(torch.cuda.device_count()):
        if str(torch.cuda.get_device_properties(index).uuid) == bare:
            return index
    raise LookupError(f"torch sees no device with UUID {uuid}")


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
