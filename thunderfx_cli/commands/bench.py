"""``thunderfx bench``: time several compilers on one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bench(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="file.py, file.py:attr or package.module:attr.")],
    inputs: Annotated[
        list[str] | None, typer.Option("--input", "-i", help="An input, name=4x64:f32; may be repeated.")
    ] = None,
    backends: Annotated[
        str, typer.Option("--backends", help="Of eager, aot_eager, inductor, thunderfx and lightning.")
    ] = "eager,aot_eager,inductor,thunderfx",
    executors: Annotated[
        list[str] | None,
        typer.Option("--executors", help="Executors of thunderfx, in order of preference; repeat for more rows."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:0.")] = "auto",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Timed steps of each.")] = 30,
    warmup: Annotated[int, typer.Option("--warmup", min=1, help="Steps of each before the timed ones.")] = 5,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed for weights and inputs.")] = 0,
    backward: Annotated[bool, typer.Option("--backward/--no-backward", help="Run the backward pass.")] = True,
    dynamic: Annotated[
        bool | None, typer.Option("--dynamic/--static", help="Symbolic sizes (default: as torch.compile decides).")
    ] = None,
    name: Annotated[str, typer.Option("--name", help="A name for the stored result.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the stored result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the id of the result only.")] = False,
    store: Annotated[Path | None, typer.Option("--store", help="Where runs are stored.")] = None,
) -> None:
    """Time eager, aot_eager, inductor and thunderfx on a model, interleaved in one process, and compare.

    Example: thunderfx bench model.py --executors torch --executors inductor
    """
    from thunderfx_cli.loading.target import parse_target
    from thunderfx_cli.running.request import Request

    chosen = tuple(part.strip() for part in backends.split(",") if part.strip())
    request = Request(
        target=parse_target(target),
        target_text=target,
        script_args=(),
        input_specs=tuple(inputs or ()),
        device=device,
        executors=None,
        backend="thunderfx",
        steps=steps,
        warmup=warmup,
        seed=seed,
        backward=backward,
        dynamic=dynamic,
        fullgraph=False,
        strict=False,
        check=False,
        compile_name=None,
        name=name,
        store=store,
        given=frozenset({"executors"} if executors else ()),
        bench_backends=chosen,
        bench_executors=tuple(executors or ("torch", "inductor")) if "thunderfx" in chosen else (),
    )
    request.bench_mode()  # before torch is imported: a typing error is answered at once

    from thunderfx_cli.running.command import execute

    code = execute(request, "bench", as_json=as_json, quiet=quiet)
    if code:
        raise typer.Exit(code)
