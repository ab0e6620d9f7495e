"""The whole operator database: pass counts per dtype, thunderfx beside aot_eager.

    python tests/opinfo/run_all.py [--dtypes float32,int64] [--samples 3] [--no-aot] [--only REGEX]

Exit status 1 when an entry that aot_eager passes fails here.
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


def aot_eager(fn: Any) -> Any:
    return torch.compile(fn, backend="aot_eager")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dtypes", default=",".join(str(d).removeprefix("torch.") for d in compare.DTYPES))
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--no-aot", action="store_true", help="run aot_eager only where thunderfx fails")
    parser.add_argument("--only", default="", help="regular expression on the entry's name")
    args = parser.parse_args()
    worse = []
    print(f"{'dtype':12}{'entries':>8}{'thunderfx':>11}{'aot_eager':>11}{'seconds':>9}")
    for name in args.dtypes.split(","):
        chosen = [e for e in compare.entries(getattr(torch, name)) if re.search(args.only, e.name)]
        start, ours, theirs, failures = time.perf_counter(), 0, 0, []
        for entry in chosen:
            problem = compare.failure(entry, thunderfx, most=args.samples)
            reference = None
            if problem or not args.no_aot:
                reference = compare.failure(entry, aot_eager, most=args.samples)
            ours += problem is None
            theirs += reference is None
            if problem:
                failures.append(f"  {entry}: {problem} (aot_eager: {reference or 'passes'})")
                worse += [entry] * (reference is None)
        seconds = time.perf_counter() - start
        shown = "-" if args.no_aot else str(theirs)
        print(f"{name:12}{len(chosen):8}{ours:11}{shown:>11}{seconds:9.0f}")
        print("\n".join(failures), end="\n" if failures else "", flush=True)
    print(f"fail here and pass in aot_eager: {len(worse)}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
