"""The whole operator database: pass counts per dtype, thunderfx beside aot_eager.

    python tests/opinfo/run_all.py [--dtypes float32,int64] [--samples 3] [--no-aot] [--only REGEX] [--executors NAMES]

With ``--executors inductor`` torch.compile's default backend stands in for aot_eager. Exit status 1 when an entry that
the other passes fails here.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Any

import compare
import torch
from thunderfx import thunderfx


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtypes", default=",".join(str(d).removeprefix("torch.") for d in compare.DTYPES))
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--no-aot", action="store_true", help="run the other only where thunderfx fails")
    parser.add_argument("--only", default="", help="regular expression on the entry's name")
    parser.add_argument("--executors", default="", help="executors of thunderfx, in order of preference")
    args = parser.parse_args()
    executors = args.executors.split(",") if args.executors else None
    other = "inductor" if executors and "inductor" in executors else "aot_eager"

    def ours_compiled(fn: Any) -> Any:
        return thunderfx(fn, executors=executors)

    def theirs_compiled(fn: Any) -> Any:
        return torch.compile(fn, backend=other)

    worse = []
    print(f"{'dtype':12}{'entries':>8}{'thunderfx':>11}{other:>11}{'seconds':>9}")
    for name in args.dtypes.split(","):
        chosen = [e for e in compare.entries(getattr(torch, name)) if re.search(args.only, e.name)]
        start, ours, theirs, failures = time.perf_counter(), 0, 0, []
        for entry in chosen:
            problem = compare.failure(entry, ours_compiled, most=args.samples)
            reference = None
            if problem or not args.no_aot:
                reference = compare.failure(entry, theirs_compiled, most=args.samples)
            ours += problem is None
            theirs += reference is None
            if problem:
                failures.append(f"  {entry}: {problem} ({other}: {reference or 'passes'})")
                worse += [entry] * (reference is None)
        seconds = time.perf_counter() - start
        shown = "-" if args.no_aot else str(theirs)
        print(f"{name:12}{len(chosen):8}{ours:11}{shown:>11}{seconds:9.0f}")
        print("\n".join(failures), end="\n" if failures else "", flush=True)
    print(f"fail here and pass in {other}: {len(worse)}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
