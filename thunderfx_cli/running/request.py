"""What the command line of ``thunderfx run`` asks for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from thunderfx_cli.errors import UsageError
from thunderfx_cli.loading.mode import detect_mode
from thunderfx_cli.loading.source import read_source
from thunderfx_cli.loading.target import Target

BACKENDS = ("thunderfx", "eager", "aot_eager", "inductor", "lightning")
#: What ``thunderfx bench`` can time, in the order of its table.
BENCHED = ("eager", "aot_eager", "inductor", "thunderfx", "lightning")
#: Options that a script has no use for.
_MODEL_OPTIONS = {
    "inputs": "--input",
    "steps": "--steps",
    "warmup": "--warmup",
    "seed": "--seed",
    "backward": "--backward/--no-backward",
}


@dataclasses.dataclass(frozen=True)
class Request:
    """The command line, parsed."""

    target: Target
    target_text: str
    script_args: tuple[str, ...]
    input_specs: tuple[str, ...]
    device: str
    executors: tuple[str, ...] | None
    backend: str
    steps: int
    warmup: int
    seed: int
    backward: bool
    dynamic: bool | None
    fullgraph: bool
    strict: bool
    check: bool
    compile_name: str | None
    name: str
    store: Path | None
    given: frozenset[str] = frozenset()  #: names of the options that the command line held
    bench_backends: tuple[str, ...] = ()
    bench_executors: tuple[str, ...] = ()  #: combinations, each as on the command line

    @property
    def target_name(self) -> str:
        """What the run's id says of the target."""
        return self.target.path.stem if self.target.path is not None else str(self.target.module)

    def stored_options(self) -> dict[str, str | int | float | bool | None]:
        """The options that say what was run."""
        return {
            "device": self.device,
            "backend": ",".join(self.bench_backends) or self.backend,
            "executors": " ".join(self.bench_executors) or (",".join(self.executors) if self.executors else None),
            "inputs": " ".join(self.input_specs) or None,
            "steps": self.steps,
            "warmup": self.warmup,
            "seed": self.seed,
            "backward": self.backward,
            "dynamic": self.dynamic,
            "fullgraph": self.fullgraph,
            "strict": self.strict,
        }

    def mode(self) -> str:
        """``"model"`` or ``"script"``; reads the file, and runs nothing of it.

        Raises :class:`UserCodeError` for a file that is no Python, and :class:`UsageError` for options that do not go
        with the mode.
        """
        if self.backend not in BACKENDS:
            known = ", ".join(BACKENDS)
            raise UsageError(f"--backend {self.backend}: no such backend", hint=f"Backends: {known}.")
        if self.executors and self.backend != "thunderfx":
            raise UsageError(f"--executors are those of thunderfx, and --backend is {self.backend}")
        mode = self._mode()
        if mode == "script" and self.check:
            raise UsageError("--check needs a model: a script runs its own steps", hint="Name the model: file.py:attr.")
        if mode == "script" and self.backend == "lightning":
            raise UsageError("--backend lightning needs a model", hint="Name the model: file.py:attr.")
        unused = [option for name, option in _MODEL_OPTIONS.items() if name in self.given]
        if mode == "script" and unused:
            raise UsageError(
                f"{', '.join(unused)}: for a model only, and {self.target_text} is a script, which runs its own steps",
                hint="Name the model (file.py:attr), or give the script arguments of its own after --.",
            )
        if mode == "model" and self.script_args:
            raise UsageError("arguments after -- go to a script, and this target is a model")
        return mode

    def bench_mode(self) -> None:
        """Raises :class:`UsageError` for a script, and for backends that are not known."""
        if self._mode() == "script":
            raise UsageError(
                f"{self.target_text} is a script, and bench times a model", hint="Name the model: file.py:attr."
            )
        unknown = [name for name in self.bench_backends if name not in BENCHED]
        if unknown or not self.bench_backends:
            what = f"no backend {unknown[0]!r}" if unknown else "no backend given"
            raise UsageError(f"--backends: {what}", hint=f"Backends: {', '.join(BENCHED)}.")
        if "executors" in self.given and "thunderfx" not in self.bench_backends:
            raise UsageError("--executors are those of thunderfx, which --backends leaves out")

    def _mode(self) -> str:
        if self.target.path is None:
            return "model"
        if self.compile_name:
            return "script"
        source = read_source(self.target.path)
        return detect_mode(source, str(self.target.path), self.target.attr, input_specs=self.input_specs)
