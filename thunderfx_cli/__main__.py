"""The console entry: runs the app and shows errors in one place."""

from __future__ import annotations

import os
import sys

from thunderfx_cli.errors import EXIT_INTERRUPTED, EXIT_USER_CODE, CommandError


def main() -> None:
    """Run the command line and exit with its code."""
    if not os.environ.get("TERMINAL_WIDTH", "1").isdecimal():
        del os.environ["TERMINAL_WIDTH"]  # Typer parses it with int() when it is imported
    debug = "--debug" in sys.argv[1:] and "--" not in sys.argv[1 : sys.argv.index("--debug")]
    if debug:
        sys.argv.remove("--debug")
        os.environ["THUNDERFX_DEBUG"] = "1"
    try:
        from thunderfx_cli.app import app

        app()
    except CommandError as e:
        _fail(e)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as e:
        if _debugging():
            raise
        print(f"internal error: {_harmless(f'{type(e).__name__}: {e}'.splitlines()[0])}", file=sys.stderr)
        print("  try: the same command with --debug", file=sys.stderr)
        sys.exit(EXIT_USER_CODE)


def _debugging() -> bool:
    return bool(os.environ.get("THUNDERFX_DEBUG"))


def _fail(error: CommandError) -> None:
    if _debugging():
        import traceback

        traceback.print_exception(error)
    print(f"error: {_harmless(error.message)}", file=sys.stderr)
    if error.where:
        print(f"  at {_harmless(error.where)}", file=sys.stderr)
    if error.hint:
        print(f"  try: {_harmless(error.hint)}", file=sys.stderr)
    sys.exit(error.exit_code)


def _harmless(text: str) -> str:
    """``text`` with its line breaks and without control characters: it may quote a file or a stored run."""
    from thunderfx.trace.printer import one_line

    return "\n".join(map(one_line, text.split("\n")))


if __name__ == "__main__":
    main()
