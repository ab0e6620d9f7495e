"""Every Triton kernel that is generated for the sample models, compiled to machine code without a GPU.

    python tests/triton_aot.py [llama nanogpt ...]

One row for each model: regions, kernels, distinct sources, bytes that the kernels move, bytes of the regions' inputs
and outputs once each (the floor), the most registers and bytes of shared memory, and bytes spilled over all kernels and
targets.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from thunderfx import thunderfx
from thunderfx.executors import Fusion, Region
from thunderfx.executors.triton import TritonExecutor
from thunderfx.executors.triton.cost import schedule
from thunderfx.executors.triton.executor import plan_of
from thunderfx.executors.triton.launch import full_source, jitted
from thunderfx.executors.triton.plan import Kernel
from thunderfx.executors.triton.program import statistics, symbols_of

ROOT = Path(__file__).parents[1]
TARGETS = (80, 90, 100)
_POINTERS = {"float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "float64": "*fp64", "bool": "*i1"}


class Planning(TritonExecutor):
    """Keeps the plans of regions and leaves it to torch to run them."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: list[Kernel] = []
        self.regions = self.moved = self.floor = 0
        self.failures: list[str] = []

    def compile(self, region: Region) -> Fusion:
        try:
            plan, graph = plan_of(region)
        except Exception as e:
            self.failures.append(f"{type(e).__name__}: {e}")
            raise
        self.regions += 1
        self.kernels += plan.kernels
        self.moved += statistics(plan, symbols_of(plan, graph).hints)["bytes"]
        outputs: Any = graph.output_node().args[0]
        touched = {*graph.find_nodes(op="placeholder"), *(item for item in outputs if isinstance(item, torch.fx.Node))}
        values = [node.meta["val"] for node in touched if isinstance(node.meta.get("val"), torch.Tensor)]
        self.floor += sum(value.numel() * value.dtype.itemsize for value in values)
        raise RuntimeError("planned only")


def compiled(kernel: Kernel, capability: int) -> bytes:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    chosen = schedule(kernel)
    constants = {"WIDE": False, **chosen.blocks}
    signature = {buffer.name: _POINTERS.get(buffer.dtype, f"*i{buffer.dtype[3:]}") for buffer in kernel.buffers}
    signature |= dict.fromkeys(kernel.symbols, "i32") | dict.fromkeys(constants, "constexpr")
    aligned = {(at,): [["tt.divisibility", 16]] for at in range(len(kernel.buffers))}  # as torch allocates
    source = ASTSource(fn=jitted(kernel), signature=signature, constexprs=constants, attrs=aligned)
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options={"num_warps": chosen.warps}).asm["cubin"]


def usage(cubin: bytes) -> tuple[int, int, int]:
    """Registers, bytes of shared memory, bytes of local memory (where spills go), by ``cuobjdump``."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = {key: int(value) for key, value in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", text)}
    return found["REG"], found["SHARED"], found["LOCAL"] + found["STACK"]


def planned(name: str) -> Planning:
    sample: Any = importlib.import_module(name)
    torch.manual_seed(0)
    model = sample.model if isinstance(sample.model, torch.nn.Module) else sample.model()
    inputs = sample.inputs() if callable(sample.inputs) else sample.inputs
    executor = Planning()
    output = thunderfx(model, executors=[executor])(*inputs)
    loss = sample.loss(output) if hasattr(sample, "loss") else output
    (loss if loss.dim() == 0 else loss.float().sum()).backward()
    return executor


def main() -> int:
    sys.path.insert(0, str(ROOT / "sample_models"))
    columns = ("model", "regions", "kernels", "distinct", "moved", "floor", "registers", "shared", "spilled")
    print("".join(f"{column:>12}" for column in columns))
    failed = False
    for name in sys.argv[1:] or ["llama", "nanogpt", "convnet", "vit"]:
        executor = planned(name)
        distinct = {full_source(kernel).replace(kernel.name, "kernel"): kernel for kernel in executor.kernels}
        worst = [0, 0, 0]
        for kernel in distinct.values():
            for capability in TARGETS:
                found = usage(compiled(kernel, capability))
                worst = [max(worst[0], found[0]), max(worst[1], found[1]), worst[2] + found[2]]
        row = (executor.regions, len(executor.kernels), len(distinct), executor.moved, executor.floor, *worst)
        print(f"{name:12}" + "".join(f"{figure:>12}" for figure in row), flush=True)
        for failure in executor.failures:
            print(f"  not planned: {failure}")
        failed = failed or bool(executor.failures)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
