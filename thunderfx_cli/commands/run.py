"""``thunderfx run``: compile, run forward and backward, summarise, store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="file.py, file.py:attr or package.module:attr.")],
    script_args: Annotated[list[str] | None, typer.Argument(metavar="-- ARGS", help="The script's arguments.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="An input, name=4x64:f32; may be repeated.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:0.")] = "auto",
    executors: Annotated[
        str | None, typer.Option("--executors", help="What runs lines, in order of preference: sdpa,triton,inductor.")
    ] = None,
    backend: Annotated[
        str, typer.Option("--backend", help="thunderfx, eager, aot_eager, inductor or lightning.")
    ] = "thunderfx",
    steps: Annotated[int, typer.Option("--steps", min=0, help="Timed steps.")] = 10,
    warmup: Annotated[int, typer.Option("--warmup", min=0, help="Steps before the timed ones.")] = 3,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for weights and inputs.")] = 0,
    backward: Annotated[bool, typer.Option("--backward/--no-backward", help="Run the backward pass.")] = True,
    dynamic: Annotated[
        bool | None, typer.Option("--dynamic/--static", help="Symbolic sizes (default: as torch.compile decides).")
    ] = None,
    fullgraph: Annotated[bool, typer.Option("--fullgraph", help="Fail on a graph break.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail where thunderfx would fall back.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Compare with eager; exit 3 where they differ.")] = False,
    compile_name: Annotated[
        str | None, typer.Option("--compile", help="Script mode: compile what the script binds to this name.")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="A name for the run.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the stored summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the run's id only.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Compile a model through thunderfx, run forward and backward, summarise and store the run.

    Example: thunderfx run model.py --input x=4x64:f32 --steps 20
    """
    from thunderfx_cli.loading.target import parse_target
    from thunderfx_cli.running.request import Request

    request = Request(
        target=parse_target(target),
        target_text=target,
        script_args=tuple(script_args or ()),
        input_specs=tuple(inputs or ()),
        device=device,
        executors=tuple(part.strip() for part in executors.split(",") if part.strip()) if executors else None,
        backend=backend,
        steps=steps,
        warmup=warmup,
        seed=seed,
        backward=backward,
        dynamic=dynamic,
        fullgraph=fullgraph,
        strict=strict,
        check=check,
        compile_name=compile_name,
        name=name,
        store=store,
        given=frozenset(key for key in context.params if _given(context, key)),
    )
    mode = request.mode()  # before torch is imported: a typing error is answered at once

    from thunderfx_cli.running.command import execute

    code = execute(request, mode, as_json=as_json, quiet=quiet)
    if code:
        raise typer.Exit(code)


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
