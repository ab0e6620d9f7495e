"""The summary of a run, as a pipe and as a terminal get it."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from thunderfx_cli.render.run_view import environment_line, figure, render_run
from thunderfx_cli.store.schema import (
    CheckResult,
    Environment,
    Fallback,
    GraphBreak,
    Memory,
    Reading,
    Run,
    SubgraphIndex,
    Timing,
)

EVIL = "\x1b[31m[bold]x[/bold]\n\x9b2J\u202e"
HARMLESS = "\\x1b[31m[bold]x[/bold]\\n\\x9b2J\\u202e"


def printed(run: Run, **options: object) -> str:
    """What a console of any width prints."""
    file = io.StringIO()
    settings = {"width": 10_000, "markup": False, "highlight": False, "emoji": False, "soft_wrap": True}
    console = Console(file=file, **{**settings, **options})
    for part in render_run(run):
        console.print(part)
    return file.getvalue()


def section(run: Run, heading: str) -> list[str]:
    """Lines under a heading, without the padding of tables."""
    blocks = [[line.rstrip() for line in block.splitlines()] for block in printed(run).split("\n\n")]
    return next(lines[1:] for lines in blocks if lines and lines[0] == heading)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_a_run_without_anything_has_no_empty_parts():
    text = printed(Run("20261201-142233-mlp-3f9a"))
    assert "graph breaks: none\n" in text
    for heading in ("Subgraphs", "Time", "Check", "warning", "not measured", "None"):
        assert heading not in text


def test_environment_on_a_cpu_and_a_gpu():
    cpu = Environment(python="3.11.7", torch="2.13.0", device="cpu", device_name="EPYC", threads=2)
    assert environment_line(Run("x", environment=cpu)) == "cpu | EPYC | torch 2.13.0 | python 3.11.7 | 2 threads"
    gpu = msgspec.structs.replace(cpu, device="cuda:0", device_name="H200", cuda="12.8", threads=0)
    assert environment_line(Run("x", environment=gpu)).endswith("python 3.11.7 | CUDA 12.8, driver unknown")
    commit = msgspec.structs.replace(cpu, git_commit="0123456789abcdef", git_dirty=True)
    assert environment_line(Run("x", environment=commit)).endswith(" | git 0123456789 (modified)")


def test_subgraphs():
    graphs = (
        SubgraphIndex(
            0,
            forward_lines=9,
            forward_ops=5,
            backward_lines=18,
            backward_ops=10,
            fusions=2,
            saved_for_backward_bytes=256,
            compile_ms=1710.0,
            code="forward (model.py:10)",
            backward_status="ran",
        ),
        SubgraphIndex(1, replaces=0, fallbacks=(Fallback("backward", "lowering", "no such op"),)),
    )
    header, first, second, fallback, breaks = section(Run("x", subgraphs=graphs), "Subgraphs")
    assert cells(header)[:4] == ["subgraph", "code", "lines fwd/bwd", "ops fwd/bwd"]
    assert cells(first) == ["0", "forward (model.py:10)", "9/18", "5/10", "2", "0", "256 B", "1.71 s", "ran"]
    assert cells(second) == ["1 (replaces 0)", "0/0", "0/0", "0", "1", "-", "0 us"]
    assert fallback == "fallback in subgraph 1, backward, lowering: no such op"
    assert breaks == "graph breaks: none"


def test_graph_breaks_name_the_users_line_and_the_reason():
    breaks = (
        GraphBreak("\n  call to print\nmore about it", "/home/me/model.py", 12, "print(x)"),
        GraphBreak("", source="f()"),
    )
    assert section(Run("x", graph_breaks=breaks), "Graph breaks: 2") == [
        "  /home/me/model.py:12  print(x)",
        "    call to print",
        "  place unknown  f()",
        "    no reason given",
    ]


def test_times_have_median_spread_and_number():
    timings = {"step": Timing((1.0, 3.0, 2.0)), "first_call": Timing((2470.0,)), "import": Timing((9.0,))}
    header, first, step = section(Run("x", timings=timings), "Time")
    assert cells(header) == ["median", "spread (10%-90%)", "n"]
    assert cells(first) == ["first call", "2.47 s", "-", "1"]
    assert cells(step) == ["step", "2.00 ms", "1.20 ms - 2.80 ms", "3"]


def test_phases_without_samples_have_no_row():
    assert len(section(Run("x", timings={"forward": Timing(())}), "Time")) == 1


def test_small_stages_of_ours_are_summed():
    stages = {"Dynamo": 700.0, "AOTAutograd": 250.0, "forward: dce": 1.0, "forward: cse": 2.0, "backward: dce": 90.0}
    run = Run("x", timings={"first_call": Timing((1043.0,))}, compile_stages_ms=stages)
    assert section(run, "Time")[-1] == (
        "compile time by stage: Dynamo 700 ms, AOTAutograd 250 ms, backward: dce 90.00 ms, "
        "2 stages of thunderfx 3.00 ms"
    )


def test_memory_has_unit_and_source_and_what_is_missing_its_reason():
    readings = {
        "rss_bytes": Reading(1536.0, source="psutil"),
        "device_power_watts": Reading(71.25, source="NVML"),
        "device_utilisation_percent": Reading(None, reason="no driver"),
        "device_used_bytes": Reading(None, reason="no driver"),
        "reserved_peak_bytes": Reading(None),
    }
    lines = section(Run("x", memory=Memory(readings, "NVML: not asked")), "Memory")
    assert cells(lines[1]) == ["rss", "1.50 KiB", "psutil"]
    assert cells(lines[2]) == ["device power watts", "71.2 W", "NVML"]
    assert lines[3:] == [
        "not measured: device utilisation percent, device used (no driver)",
        "not measured: reserved peak (not measured)",
        "NVML: not asked",
    ]


def test_figures_have_the_unit_of_their_name():
    assert figure("saved_for_backward_bytes", Reading(2048.0)) == "2.00 KiB"
    assert figure("device_utilisation_percent", Reading(50.0)) == "50.0 %"
    assert figure("temperature_celsius", Reading(40.0)) == "40.0 C"
    assert figure("count", Reading(3.0)) == "3.0"
    assert figure("rss_bytes", Reading(None, reason="gone")) == "gone"


def test_check():
    good = Run("x", check=CheckResult(True, ("7 values compared with eager",)))
    assert section(good, "Check against eager") == ["passed", "  7 values compared with eager"]
    bad = Run("x", check=CheckResult(False, ("7 values", "output[0]: differs")))
    assert section(bad, "Check against eager") == ["FAILED", "  7 values", "  output[0]: differs"]


def test_a_run_that_did_not_end_well_says_so_first():
    assert printed(Run("x", status="interrupted")).splitlines()[1] == "run interrupted"
    failed = Run("x", status="failed", error="ValueError: no", warnings=("recompile limit reached",))
    assert printed(failed).splitlines()[1] == "run failed: ValueError: no"
    assert "warning: recompile limit reached\n" in printed(failed)


def test_the_end_names_the_run_and_what_to_type_next():
    assert printed(Run("20261201-142233-mlp-3f9a", name="base")).endswith(
        "\nrun 20261201-142233-mlp-3f9a (base)\nnext: thunderfx traces --backward\n      thunderfx diff\n"
    )


def evil_run() -> Run:
    """Every text field of a run holds what a terminal or Rich could act on."""
    return Run(
        id=EVIL,
        name=EVIL,
        created=EVIL,
        status=EVIL,
        error=EVIL,
        target=EVIL,
        environment=Environment(*[EVIL] * 8, threads=1, git_commit=EVIL),
        subgraphs=(SubgraphIndex(0, code=EVIL, backward_status=EVIL, fallbacks=(Fallback(EVIL, EVIL, EVIL),)),),
        graph_breaks=(GraphBreak(EVIL, EVIL, 1, EVIL),),
        timings={EVIL: Timing((1.0,)), "step": Timing((1.0,))},
        compile_stages_ms={EVIL: 1.0},
        memory=Memory({EVIL: Reading(1.0, EVIL, EVIL), f"{EVIL}2": Reading(None, EVIL)}, EVIL),
        warnings=(EVIL,),
        check=CheckResult(False, (EVIL,)),
    )


def test_text_of_a_run_is_shown_harmlessly():
    for run in (evil_run(), msgspec.structs.replace(evil_run(), error="")):
        text = printed(run)
        assert HARMLESS in text
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)


def test_a_terminal_gets_colour_and_the_same_words():
    run = msgspec.structs.replace(evil_run(), status="complete")
    shown = printed(run, force_terminal=True, color_system="standard", width=10_000)
    assert "\x1b[1;31mFAILED" in shown
    assert "\x1b[33mwarning: " + HARMLESS in shown
    assert "\x9b" not in shown
