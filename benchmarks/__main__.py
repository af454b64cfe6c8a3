"""Run a benchmark and keep what it found, or make the page of what was found.

python -m benchmarks --list
python -m benchmarks NAME [options]     (NAME --help lists them; --dry-run keeps nothing)
python -m benchmarks --page             benchmarks/performance.md and its plots, from benchmarks/results/*.json
"""

from __future__ import annotations

import json
import resource
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from datetime import UTC, datetime

from benchmarks.measuring import load, machine, peak_mb, rounded, say, versions
from benchmarks.registry import BENCHMARKS, Benchmark
from benchmarks.results import Result


def run(benchmark: Benchmark, words: Sequence[str]) -> tuple[Result, bool]:
    """One run, and whether it is to be kept."""
    parser = ArgumentParser(prog=f"python -m benchmarks {benchmark.name}", description=benchmark.summary)
    parser.add_argument("--dry-run", action="store_true", help="print what was found and keep nothing")
    module = benchmark.load()
    module.options(parser)
    options = parser.parse_args(words)
    start, before, clock = load(), _processor_seconds(), time.perf_counter()
    rows = list(module.run(options))
    wall = time.perf_counter() - clock
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    settings = {name: value for name, value in vars(options).items() if name != "dry_run"}
    result = Result(
        benchmark.name,
        datetime.now(UTC).isoformat(timespec="seconds"),
        machine(),
        versions(),
        {"start": start, "end": load()},
        settings,
        {"made up": module.SEED},
        round(wall, 1),
        round(_processor_seconds() - before, 1),
        rounded(max(peak_mb(), children)) or 0.0,
        rows,
    )
    return result, not options.dry_run


def _processor_seconds() -> float:
    """Of this process, and of those that it started and that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in found)


def main(words: Sequence[str] | None = None) -> None:
    words = sys.argv[1:] if words is None else words
    parser = ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", choices=BENCHMARKS)
    parser.add_argument("--list", action="store_true", help="name the benchmarks")
    parser.add_argument("--page", action="store_true", help="make benchmarks/performance.md from the kept results")
    own = [word for word in words if word in BENCHMARKS][:1]
    arguments = parser.parse_args(words[: words.index(own[0]) + 1] if own else words)
    if arguments.list:
        for benchmark in BENCHMARKS.values():
            print(f"{benchmark.name:14}{benchmark.summary}")
    elif arguments.page:
        from benchmarks.page import write_page

        for path in write_page():
            print(path.name)
    elif arguments.name is None:
        parser.print_help()
    else:
        result, keep = run(BENCHMARKS[arguments.name], words[words.index(arguments.name) + 1 :])
        for row in result.rows:
            print(json.dumps(row, ensure_ascii=False))
        if keep:
            say(f"Kept in {result.write().name}; python -m benchmarks --page puts it on the page.")


if __name__ == "__main__":
    main()
