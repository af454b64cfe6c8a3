"""Where the processor's time goes in one release: a look at the stack every few milliseconds of processor time.

What a look finds is the innermost line of this library that is on the stack; its part of the work is told by the table
below. Sampling costs next to nothing, where cProfile would double the time of what calls most functions.
"""

from __future__ import annotations

import signal
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from benchmarks import corpora
from benchmarks.measuring import in_own_process, rounded
from benchmarks.results import Row
from benchmarks.scaling import CASES, measure_one

SEED = corpora.SEED
PARTS = {
    "reading and checking rows": (
        "corpus/arrow.py",
        "corpus/corpus.py",
        "schema/labels.py",
        "corpus/read.py",
        "corpus/readers.py",
        "corpus/sources.py",
        "corpus/bad_rows.py",
        "base/parquet.py",
    ),
    "hashing each row: does the table stay as it was?": ("corpus/verified.py",),
    "fingerprint and identity: is the table known?": ("corpus/corpus.py:fingerprint", "corpus/identity.py"),
    "bounding owners": ("corpus/bounding.py",),
    "matching terms": ("text/vocabulary/words.py", "text/vocabulary/words.py"),
    "the public vocabulary, and the terms above the noise": ("text/vocabulary/",),
    "counting in integers": ("methods/shared/queries/",),
    "noise": ("privacy/noise.py", "privacy/mechanisms.py"),
    "votes": ("methods/shared/evolution/voting.py", "methods/aug_pe/release.py"),
    "embeddings (hashes here)": ("methods/shared/evolution/embeddings.py", "benchmarks/corpora.py"),
    "accounting": ("privacy/",),
    "ledger and store": ("ledger/",),
}
"""From a part of the work to where in the library it is done: files or folders, functions of a file. The longest that
fits counts."""
REST = "the rest (imports and writing)"
_EVERY = 0.002  # seconds of processor time
_TOP = 12
_HERE = ("/understudy/", "/benchmarks/corpora.py")


@contextmanager
def sampled() -> Iterator[Counter[tuple[str, int, str]]]:
    """How often each (file, line, function) of this library was found innermost. In the main thread only."""
    found: Counter[tuple[str, int, str]] = Counter()

    def look(_signal: int, frame: FrameType | None) -> None:
        while frame is not None:
            file = frame.f_code.co_filename
            if any(part in file for part in _HERE):
                found[_shown(file), frame.f_lineno, frame.f_code.co_name] += 1
                return
            frame = frame.f_back
        found["", 0, ""] += 1

    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, _EVERY, _EVERY)
    try:
        yield found
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _shown(file: str) -> str:
    return file.rpartition("/understudy/")[2] if "/understudy/" in file else f"benchmarks/{Path(file).name}"


def part_of(file: str, function: str) -> str:
    """The part of the work that a function of a file does."""
    whole = f"{file}:{function}"
    fits = [(len(place), part) for part, places in PARTS.items() for place in places if whole.startswith(place)]
    return max(fits)[1] if fits else REST


def profile_one(name: str, file: Path) -> tuple[Row, dict[str, float], dict[str, float]]:
    """The release's row, the share of each part, and that of the functions that took most."""
    with sampled() as found:
        row = measure_one(name, file)
    total = sum(found.values()) or 1
    parts: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for (where, _, function), count in found.items():
        parts[part_of(where, function)] += count
        functions[f"{where}:{function}"] += count
    return (
        row,
        {part: count / total for part, count in parts.most_common()},
        {function: count / total for function, count in functions.most_common(_TOP)},
    )


def run(options: Namespace) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        file = corpora.write_table(Path(folder) / "corpus.parquet", options.records)
        for name in options.releases:
            row, parts, functions = in_own_process(profile_one, name, file)
            whole: dict[str, Any] = {key: row[key] for key in ("release", "processor_seconds", "passes")}
            yield {
                **whole,
                "records": options.records,
                "floor": row["floor"],
                "floor_seconds": row["floor_seconds"],
                "ratio": row["ratio"],
                "parts": {part: rounded(share) for part, share in parts.items()},
                "functions": {function: rounded(share) for function, share in functions.items()},
            }


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--releases", nargs="+", choices=CASES, default=["dp-kps"])
