"""The course of one ``thunderfx run``."""

from __future__ import annotations

import dataclasses
import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from thunderfx_cli.errors import (
    EXIT_GATE,
    EXIT_INTERRUPTED,
    EXIT_NO_RUN,
    EXIT_OK,
    EXIT_USER_CODE,
    CommandError,
    UsageError,
    UserCodeError,
)
from thunderfx_cli.running.measured import Measured, dynamo_warnings
from thunderfx_cli.running.options import RunOptions, resolve_device
from thunderfx_cli.running.request import Request
from thunderfx_cli.store import RunWriter, Store
from thunderfx_cli.store.reader import read_run
from thunderfx_cli.store.schema import Environment, Reading, Run

Say = Callable[[str], None]


def execute(request: Request, mode: str, *, as_json: bool, quiet: bool) -> int:
    """Run, store, print. Returns the exit code; raises :class:`CommandError` for what the user can mend."""
    started = datetime.now().astimezone()
    writer = Store.find(request.store).new_run(request.target_name)  # first of all: a store that cannot be written
    try:
        with redirect_stdout(sys.stderr) if as_json or quiet else nullcontext():  # what the user's code prints
            run, outcome = _run(request, mode, writer, started, show_progress=not quiet and not as_json)
        folder = writer.commit(run)
    except BaseException:
        writer.abandon()
        raise
    if writer.rescued is not None:
        print(f"warning: {writer.problem}", file=sys.stderr)
        print(f"  the run was saved in {writer.rescued}: read it with --store {writer.rescued}", file=sys.stderr)
    return _report(read_run(folder), outcome, as_json=as_json, quiet=quiet) or (EXIT_NO_RUN if writer.rescued else 0)


def _run(
    request: Request, mode: str, writer: RunWriter, started: datetime, *, show_progress: bool
) -> tuple[Run, _Outcome]:
    """Measure, and write what is to be stored."""
    with _progress(enabled=show_progress) as say:
        say("importing torch")
        start = time.perf_counter_ns()
        from thunderfx.dynamo.capture import dynamo_compile_ms
        from thunderfx.executors import resolve_executors

        try:
            resolve_executors(request.executors)
        except (ValueError, TypeError) as e:
            raise UsageError(f"--executors: {e}") from None
        measured = Measured()
        asked = (*(request.executors or ()), *",".join(request.bench_executors).split(","))
        if "triton" in asked and resolve_device(request.device).type == "cpu":
            measured.warnings.append("triton runs in its interpreter on the CPU: for checking, not for speed")
        measured.add_sample("import", (time.perf_counter_ns() - start) / 1e6)
        outcome = _Outcome()
        options = _options(request)
        environment = _environment(request, options)  # before a script changes the working directory
        with dynamo_warnings(measured.warnings), _nvml(options, measured):
            compiled_before = dynamo_compile_ms()
            _measure(request, mode, options, measured, outcome, say)
            measured.dynamo_ms = dynamo_compile_ms() - compiled_before
        if mode == "script" and not measured.subgraphs and outcome.status == "complete":
            raise _nothing_compiled(request)
        say("storing the run")
        from thunderfx_cli.running.record import record_run

        run = record_run(
            request,
            measured,
            writer,
            mode=mode,
            created=started,
            environment=environment,
            status=outcome.status,
            error=outcome.error.message if outcome.error else "",
            breaks=_breaks_since(outcome.breaks_before),
        )
    return run, outcome


@dataclasses.dataclass
class _Outcome:
    status: str = "complete"
    error: CommandError | None = None
    exit_code: int = EXIT_OK
    breaks_before: int = 0


def _nothing_compiled(request: Request) -> CommandError:
    return CommandError(
        f"nothing was compiled: {request.target} defines no model with inputs, and no call in it went through "
        "torch.compile or thunderfx",
        exit_code=EXIT_USER_CODE,
        where=str(request.target.path),
        hint=f"Name a module of the file ({request.target}:net --input x=4x64), or what to compile (--compile net).",
    )


def _options(request: Request) -> RunOptions:
    return RunOptions(
        device=resolve_device(request.device),
        executors=request.executors,
        backend=request.backend,
        steps=request.steps,
        warmup=request.warmup,
        seed=request.seed,
        backward=request.backward,
        dynamic=request.dynamic,
        fullgraph=request.fullgraph,
        strict=request.strict,
    )


def _measure(request: Request, mode: str, options: RunOptions, measured: Measured, outcome: _Outcome, say: Say) -> None:
    """Run the target; an interruption or a failure ends it, and what was measured stays."""
    from thunderfx.dynamo.capture import all_graph_breaks

    from thunderfx_cli.running.memory_step import picture_memory

    outcome.breaks_before = len(all_graph_breaks())
    try:
        if mode == "script":
            from thunderfx_cli.running.script_run import run_program

            assert request.target.path is not None
            outcome.exit_code = run_program(
                request.target.path,
                request.script_args,
                options,
                measured,
                compile_name=request.compile_name,
                say=say,
            )
            if outcome.exit_code:
                raise UserCodeError(f"{request.target} ended with exit code {outcome.exit_code}")
        elif mode == "bench":
            _measure_bench(request, options, measured, say)
        else:
            _measure_model(request, options, measured, say)
            if options.strict and not measured.subgraphs:
                outcome.error = UserCodeError("--strict: TorchDynamo made no graph of the model, which ran in eager")
                outcome.status, outcome.exit_code = "failed", EXIT_USER_CODE
            if measured.check is not None and not measured.check.ok:
                outcome.exit_code = EXIT_GATE
    except KeyboardInterrupt:
        outcome.status, outcome.exit_code = "interrupted", EXIT_INTERRUPTED
    except UsageError:
        raise
    except CommandError as e:
        outcome.status, outcome.error, outcome.exit_code = "failed", e, e.exit_code
        ran_out = mode != "bench" and picture_memory(e, options, measured)
        if not measured.subgraphs and not measured.contenders and not ran_out:
            raise


def _measure_model(request: Request, options: RunOptions, measured: Measured, say: Say) -> None:
    from thunderfx_cli.loading.model import load_model
    from thunderfx_cli.running.model_run import run_model

    say("loading the model")
    start = time.perf_counter_ns()
    loaded = load_model(request.target, input_specs=request.input_specs, device=options.device, seed=options.seed)
    measured.loaded = loaded
    measured.add_sample("load", (time.perf_counter_ns() - start) / 1e6)
    files = [str(request.target.path.absolute())] if request.target.path is not None else []
    run_model(loaded, options, measured, check=request.check, say=say, files=files)


def _measure_bench(request: Request, options: RunOptions, measured: Measured, say: Say) -> None:
    from thunderfx.dynamo.lightning import lightning_problem

    from thunderfx_cli.loading.model import load_model
    from thunderfx_cli.loading.user_errors import user_code
    from thunderfx_cli.running.bench import run_bench
    from thunderfx_cli.running.contenders import contenders

    chosen = contenders(request.bench_backends, request.bench_executors, {"dynamic": options.dynamic})
    if "lightning" not in request.bench_backends:
        measured.warnings += [f"not timed: {problem}" for problem in (lightning_problem(),) if problem]
    say("loading the model")
    loaded = load_model(request.target, input_specs=request.input_specs, device=options.device, seed=options.seed)
    with user_code([str(request.target.path.absolute())] if request.target.path is not None else []):
        run_bench(loaded, chosen, options, measured.contenders, say)
    failed = [item for item in measured.contenders if item.error]
    if failed:
        raise UserCodeError(f"{failed[0].name} did not run the model: {failed[0].error}")


def _breaks_since(before: int) -> list[Any]:
    from thunderfx.dynamo.capture import all_graph_breaks

    return all_graph_breaks()[before:]


@contextmanager
def _nvml(options: RunOptions, measured: Measured) -> Iterator[None]:
    """Sample NVML while the body runs; what it saw, or why nothing, goes into ``measured``."""
    from thunderfx.profiling.nvml import NvmlSampler, device_uuid_of

    if options.device.type == "cpu":
        measured.nvml = "NVML: not asked, the run is on the CPU"
        yield
        return
    sampler = NvmlSampler(device_uuid_of(options.device))
    try:
        with sampler:
            yield
    finally:
        measured.nvml = sampler.status
        measured.readings.update({name: Reading(r.value, r.reason, r.source) for name, r in sampler.readings().items()})


@contextmanager
def _progress(*, enabled: bool) -> Iterator[Say]:
    """A status line on stderr, on a terminal only."""
    from rich.console import Console

    console = Console(stderr=True)
    if not enabled or not console.is_terminal:
        yield lambda text: None
        return
    from rich.markup import escape

    with console.status("starting") as status:
        yield lambda text: status.update(escape(text))


def _environment(request: Request, options: RunOptions) -> Environment:
    from thunderfx.profiling.environment import describe

    folder = request.target.path.absolute().parent if request.target.path is not None else Path.cwd()
    facts = describe(options.device, folder)
    fields = {field.name for field in msgspec.structs.fields(Environment)}
    return msgspec.convert({k: v for k, v in facts.items() if k in fields and v is not None}, Environment)


def _report(run: Run, outcome: _Outcome, *, as_json: bool, quiet: bool) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    if as_json:
        from thunderfx_cli.output import write_result
        from thunderfx_cli.render.json_text import json_text

        write_result(json_text(run) + "\n")
    elif quiet:
        print(run.id)
    else:
        from thunderfx_cli.render.console import stdout_console
        from thunderfx_cli.render.run_view import render_run

        console = stdout_console()
        for part in render_run(run):
            console.print(part)
    if outcome.error is not None:
        raise outcome.error
    return outcome.exit_code
