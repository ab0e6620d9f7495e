"""NvmlSampler against the real pynvml, which loads a scripted libnvidia-ml.so.1 in a subprocess."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from thunderfx.profiling.nvml import NvmlSampler

MIB = 1 << 20
COMPILER = shutil.which("gcc") or shutil.which("cc")
MEMORY = ("device_used_bytes", "device_used_peak_bytes", "device_total_bytes")
OTHERS = ("device_utilisation_percent", "device_power_watts", "temperature_celsius")

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pynvml loads libnvidia-ml.so.1 on Linux only"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler (gcc or cc) to build the NVML stub with"),
]

PROGRAM = """
import json, sys, types
import threading

arguments = json.loads(sys.argv[1])
if arguments["torch"] is not None:
    # a torch whose CUDA is in use, with the device at index 1
    uuids, free_mib = ["other", "1234"], arguments["torch"]
    sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        current_device=lambda: 1 if threading.current_thread() is threading.main_thread() else 0,
        get_device_properties=lambda i: types.SimpleNamespace(uuid=uuids[i]),
        mem_get_info=lambda i: (free_mib * 2**20, 800 * 2**20) if i == 1 else (0, 0),
    ))

from thunderfx.profiling.nvml import NvmlSampler, driver_version

sampler = NvmlSampler(arguments["uuid"], interval_ms=1)
with sampler:
    thread = sampler._thread
    for _ in range(5000):  # at most 5 s, usually a few ms
        if thread is None or not thread.is_alive() or sampler._rounds >= 4:
            break
        thread.join(0.001)
print(json.dumps({
    "status": sampler.status,
    "readings": {name: [r.value, r.reason, r.source] for name, r in sampler.readings().items()},
    "power": sampler.samples("device_power_watts"),
    "rounds": sampler._rounds,
    "driver": driver_version(),
    "threads": [t.name for t in threading.enumerate()],
}))
"""


@pytest.fixture(scope="module")
def library_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml_stub.c")
    command = [COMPILER, "-shared", "-fPIC", "-Wall", "-Werror", "-o", folder / "libnvidia-ml.so.1", source]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture
def sample(library_folder, tmp_path):
    """Run a sampler in a process of its own and return what it found, with what the stub logged."""

    def run(behaviour, uuid="1234", torch=None, folder=library_folder):
        log = tmp_path / "log"
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "THUNDERFX_NVML_STUB": behaviour,
            "THUNDERFX_NVML_STUB_LOG": str(log),
        }
        command = [sys.executable, "-c", PROGRAM, json.dumps({"uuid": uuid, "torch": torch})]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        found = json.loads(done.stdout)
        assert found["threads"] == ["MainThread"]
        assert "\n" not in found["status"]
        return found, log.read_text().split() if log.exists() else []

    return run


def values(found):
    return {name: value for name, (value, _, _) in found["readings"].items()}


def test_healthy_device(sample):
    found, log = sample("ok")
    assert values(found) == {
        "device_used_bytes": 200 * MIB,
        "device_used_peak_bytes": 300 * MIB,
        "device_total_bytes": 1000 * MIB,
        "device_utilisation_percent": 50,
        "device_power_watts": 123.5,
        "temperature_celsius": 61,
    }
    assert all(reason == "" for _, reason, _ in found["readings"].values())
    assert found["readings"]["device_used_peak_bytes"][2] == f"NVML memory v2, maximum of {found['rounds']} samples"
    assert found["status"] == f"NVML: {found['rounds']} samples of Stub GPU, every 1 ms"
    assert found["power"] == [123.5] * found["rounds"]
    assert found["driver"] == "999.42"
    assert log == ["shutdown", "shutdown"]  # the sampler's and driver_version's


@pytest.mark.parametrize("uuid", ["GPU-1234", "1234", None])
def test_device_is_found_by_uuid_with_or_without_prefix_or_alone(sample, uuid):
    assert values(sample("ok", uuid)[0])["device_total_bytes"] == 1000 * MIB


def test_unknown_device_is_not_replaced_by_another(sample):
    found, _ = sample("ok", "9999")
    assert set(values(found).values()) == {None}
    assert found["status"] == "NVML: no device with UUID GPU-9999 or MIG-9999"


def test_no_uuid_and_several_devices(sample):
    found, _ = sample("two devices", None)
    assert set(values(found).values()) == {None}
    assert found["status"] == "NVML: 2 devices and no UUID to choose one by"


def test_no_uuid_takes_the_current_device_of_torch(sample):
    found, _ = sample("two devices", None, torch=500)
    assert values(found)["device_total_bytes"] == 1000 * MIB


def test_mig_instance_has_memory_but_no_utilisation(sample):
    found, _ = sample("mig")
    assert values(found)["device_used_peak_bytes"] == 300 * MIB
    assert found["readings"]["device_utilisation_percent"][:2] == [None, "not supported by this device"]


def test_memory_version_1_is_named_in_the_source(sample):
    found, _ = sample("memory v1")
    value, reason, source = found["readings"]["device_used_peak_bytes"]
    assert (value, reason) == (350 * MIB, "")
    assert source.startswith("NVML memory v1 (driver's reserve included)")


def test_memory_not_supported_leaves_the_rest(sample):
    found, _ = sample("no memory")
    for name in MEMORY:
        assert found["readings"][name][:2] == [None, "not supported by this device"]
    assert [values(found)[name] for name in OTHERS] == [50, 123.5, 61]


@pytest.mark.parametrize("uuid", ["1234", "GPU-1234", None])
def test_memory_not_supported_falls_back_to_torch(sample, uuid):
    found, _ = sample("no memory", uuid, torch=500)
    assert [values(found)[name] for name in MEMORY] == [300 * MIB, 300 * MIB, 800 * MIB]
    assert found["readings"]["device_total_bytes"][2] == "torch.cuda.mem_get_info"
    assert found["status"].endswith("; memory from torch.cuda.mem_get_info")
    assert [values(found)[name] for name in OTHERS] == [50, 123.5, 61]


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [
        ("no permission", "NVML: no permission to ask the driver"),
        ("mismatch", "NVML: driver and NVML library differ in version (reload the driver or reboot)"),
    ],
)
def test_failed_initialisation(sample, behaviour, status):
    found, log = sample(behaviour)
    assert found["status"] == status
    assert {(value, reason) for value, reason, _ in found["readings"].values()} == {(None, status[len("NVML: ") :])}
    assert found["driver"] is None
    assert log == []

    found, _ = sample(behaviour, torch=500)
    assert found["status"] == status + "; memory from torch.cuda.mem_get_info"
    assert values(found)["device_used_bytes"] == 300 * MIB
    assert found["readings"]["device_power_watts"][:2] == [None, status[len("NVML: ") :]]


def test_device_lost_in_mid_run_keeps_what_was_measured(sample):
    found, log = sample("lost", torch=500)
    assert found["status"].startswith("NVML: device lost after 2 samples (GPU is lost)")
    value, reason, source = found["readings"]["device_used_peak_bytes"]
    assert (value, reason) == (300 * MIB, "device lost after 2 samples: GPU is lost")
    assert source == "NVML memory v2, maximum of 3 samples"  # the third round ended after its memory query
    assert "shutdown" in log


def test_passing_failure_is_asked_again(sample):
    found, _ = sample("timeout")
    assert values(found)["device_utilisation_percent"] == 50
    assert found["readings"]["device_utilisation_percent"][2] == f"NVML, mean of {found['rounds'] - 1} samples"


def test_error_code_that_pynvml_does_not_know(sample):
    found, _ = sample("unknown power")
    assert found["readings"]["device_power_watts"][0] is None
    assert "an error of the stub" in found["readings"]["device_power_watts"][1]
    assert values(found)["temperature_celsius"] == 61


def test_library_that_cannot_be_loaded(sample, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    found, _ = sample("ok", folder=tmp_path)
    assert found["status"] == "NVML: no driver (libnvidia-ml.so.1 not found)"
    assert set(values(found).values()) == {None}


def test_missing_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with NvmlSampler("1234") as sampler:
        pass
    assert sampler.status == "NVML: the module pynvml is missing (pip install nvidia-ml-py)"


def test_before_the_start():
    sampler = NvmlSampler()
    sampler.stop()
    assert sampler.status == "NVML: not started"
    assert sampler.readings()["device_used_bytes"].reason == "not started"
