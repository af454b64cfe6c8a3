"""benchmarks/performance.md and its plots, from the kept results alone.

The words are in ``performance.md.jinja``; every figure is from a file of ``results/``, or computed here from some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.corpora import DIMENSION
from benchmarks.measuring import ROOT
from benchmarks.plots import against_records
from benchmarks.ratios import PAIRS
from benchmarks.registry import BENCHMARKS
from benchmarks.results import FOLDER, Result, Row
from benchmarks.scaling import CASES
from understudy.methods.dp_finetune.plan import _BATCH, _STEPS
from understudy.methods.private_prediction.plan import PrivatePredictionParameters
from understudy.methods.seq_pate.plan import _TEACHERS
from understudy.methods.shared.evolution.embeddings import _row_type
from understudy.report.numbers import percent

PAGE = Path("benchmarks") / "performance.md"
PLOTS = Path("docs") / "images"
SIZES = (10**6, 10**8)
"""For which the costs are computed."""
_FLAT = 1.15
"""Memory that grows by less than this factor from the second largest table to the largest is flat."""


def files(folder: Path = FOLDER) -> dict[Path, str]:
    """The page and its plots, by their paths in the repository."""
    results = {name: Result.read(name, folder) for name in BENCHMARKS}
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "time": time_words,
        "number": number,
        "memory": memory_words,
        "times": times,
        "percent": percent,
    }
    costs = Costs(results)
    page = environment.get_template("performance.md.jinja").render(
        results=results, costs=costs, pairs=PAIRS, cases=CASES, sizes=SIZES, summaries=BENCHMARKS, settings=settings
    )
    rows = results["scaling"].rows
    return {
        PAGE: page,
        PLOTS / "performance-time.svg": _plot(
            rows, "processor_seconds", "Processor time of a release", "processor seconds", _powers()
        ),
        PLOTS / "performance-memory.svg": _plot(
            rows, "anonymous_mb", "Memory of a release", "MiB", (100, 200, 500, 1_000, 2_000, 5_000, 10_000)
        ),
    }


def write_page(root: Path = ROOT) -> list[Path]:
    """Write them; their paths."""
    for path, text in files().items():
        (root / path).write_text(text, "utf-8")
    return list(files())


def _powers() -> tuple[float, ...]:
    return tuple(10.0**power for power in range(-2, 6))


def _plot(rows: Sequence[Row], figure: str, title: str, unit: str, powers: Sequence[float]) -> str:
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        lines.setdefault(row["release"], []).append((row["records"], row[figure]))
    return against_records(title, lines, unit=unit, powers=powers)


@dataclass(frozen=True)
class Line:
    """A line of growth, from two measured points."""

    at: float
    value: float
    slope: float

    def __call__(self, records: float) -> float:
        return max(0.0, self.value + self.slope * (records - self.at))


@dataclass(frozen=True)
class Costs:
    """What a million and a hundred million records would take, on one core of the machine that was measured."""

    results: Mapping[str, Result]

    @property
    def releases(self) -> list[str]:
        return list(dict.fromkeys(row["release"] for row in self.results["scaling"].rows))

    def rows(self, release: str) -> list[Row]:
        """By the number of records."""
        found = [row for row in self.results["scaling"].rows if row["release"] == release]
        return sorted(found, key=lambda row: row["records"])

    def line(self, release: str, figure: str) -> Line:
        """Through the two largest tables."""
        before, last = self.rows(release)[-2:]
        slope = (last[figure] - before[figure]) / (last["records"] - before["records"])
        return Line(last["records"], last[figure], slope)

    def seconds(self, release: str) -> Line:
        return self.line(release, "processor_seconds")

    def is_flat(self, release: str) -> bool:
        """Whether memory does not grow with the records."""
        before, last = self.rows(release)[-2:]
        return bool(last["anonymous_mb"] < _FLAT * before["anonymous_mb"])

    def memory_mb(self, release: str, records: float) -> float:
        line = self.line(release, "anonymous_mb")
        return line.value if self.is_flat(release) else line(records)

    def most_memory_mb(self, records: float) -> float:
        return max(self.memory_mb(release, records) for release in self.releases)

    def bytes_per_record(self, release: str) -> float:
        return self.line(release, "anonymous_mb").slope * 2**20

    @property
    def disk_bytes(self) -> int:
        """Of the embeddings of one record."""
        return _row_type(DIMENSION).itemsize

    def pair(self, name: str) -> Row:
        """A row of ``ratios``."""
        return next(row for row in self.results["ratios"].rows if row["pair"] == name)

    def per(self, name: str) -> float:
        """Seconds per unit of a pair."""
        return float(self.pair(name)["seconds_per_unit"])

    @property
    def one_pass(self) -> float:
        """Seconds per record of one verified pass."""
        return self.seconds("label-counts").slope / 2

    def of_models(self) -> list[tuple[str, str, Callable[[float], float]]]:
        """Methods whose private model reads records: what is counted, and seconds by the number of records."""
        token, text, teacher = self.per("prediction"), self.per("gradients"), self.per("teachers")
        tokens = PrivatePredictionParameters().resolved.tokens or 0
        return [
            (
                "private-prediction, all records used",
                f"{tokens} private tokens of every record's row",
                lambda records: records * tokens * token,
            ),
            (
                "dp-finetune, defaults",
                f"{_STEPS} steps of {_BATCH} texts (64 tokens), whatever the table's size",
                lambda records: _STEPS * _BATCH * text,
            ),
            (
                "seq-pate, defaults: teachers alone",
                f"{_TEACHERS} teachers of four texts (64 tokens), whatever the table's size",
                lambda records: _TEACHERS * teacher,
            ),
        ]


def settings(result: Result) -> list[tuple[str, list[Row]]]:
    """The rows of ``settings`` by what was changed."""
    names = dict.fromkeys(row["setting"] for row in result.rows)
    return [(name, [row for row in result.rows if row["setting"] == name]) for name in names]


def number(value: float | None, digits: int = 3) -> str:
    """So many significant digits, thousands parted.

    >>> number(1234.5), number(0.01234), number(16), number(None)
    ('1,230', '0.0123', '16', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"


def times(ratio: float) -> str:
    """A ratio: two decimals below ten.

    >>> times(1.002), times(59.13), times(999.1)
    ('1.00', '59', '999')
    """
    return f"{ratio:.2f}" if ratio < 10 else f"{ratio:,.0f}"


_UNITS = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def time_words(seconds: float) -> str:
    """In the largest unit of which there is one, or two of minutes and more.

    >>> time_words(7300), time_words(119), time_words(1.51), time_words(0.0125), time_words(3e5)
    ('2 h', '119 s', '1.5 s', '12 ms', '3.5 days')
    """
    for size, unit in _UNITS:
        if seconds >= (2 if size > 1 else 1) * size or unit == "ns":
            return f"{number(seconds / size, 2 if seconds / size < 100 else 3)} {unit}"
    raise AssertionError("nanoseconds are the last")


def memory_words(megabytes: float) -> str:
    """In MiB, GiB or TiB.

    >>> memory_words(312.4), memory_words(20480)
    ('312 MiB', '20 GiB')
    """
    for size, unit in ((2.0**20, "TiB"), (2.0**10, "GiB")):
        if megabytes >= size:
            return f"{number(megabytes / size, 2 if megabytes < 100 * size else 3)} {unit}"
    return f"{number(megabytes) if megabytes >= 1 else 0} MiB"
