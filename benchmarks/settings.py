"""A dp-kps release of a table of one size, one setting changed at a time: what its time hangs on besides records."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import understudy as us
from benchmarks import corpora
from benchmarks.measuring import in_own_process, say
from benchmarks.results import Row
from benchmarks.scaling import PLAIN, Case, measure_release, releasing
from understudy.text.vocabulary.terms import built_in_terms

SEED = corpora.SEED
_LABELS = (4, 40, 400)
_EPSILONS = (1, 6, 15)
_VOCABULARIES = (20_000, 82_000, 400_000)
_TOP_TERMS = (200, 1_000, 5_000)
VARIED = {"labels": _LABELS, "epsilon": _EPSILONS, "public vocabulary": _VOCABULARIES, "top_terms": _TOP_TERMS}


def measure_one(setting: str, value: int, records: int) -> Row:
    """One release; to be called in a process of its own."""
    labels = value if setting == "labels" else corpora.LABELS
    with tempfile.TemporaryDirectory() as folder:
        file = corpora.write_table(Path(folder) / "corpus.parquet", records, labels=labels)
        make: Callable[[us.Corpus, Path], object] = releasing(us.DPKPS())
        if setting == "epsilon":
            make = releasing(us.DPKPS(), us.Budget(value, "1e-6"))
        elif setting == "top_terms":
            make = releasing(us.DPKPS(top_terms=value))
        elif setting == "public vocabulary":
            terms = built_in_terms()[:value]
            terms += [f"made up {number}" for number in range(value - len(terms))]
            vocabulary = Path(folder) / "terms.txt"
            vocabulary.write_text("\n".join(terms), "utf-8")
            make = releasing(us.DPKPS(vocabulary=str(vocabulary), vocabulary_is_public=True))
        return {"setting": setting, "value": value, **measure_release(Case("", PLAIN, make), file, labels=labels)}


def run(options: Namespace) -> Iterator[Row]:
    for setting in options.settings:
        for value in VARIED[setting]:
            found = in_own_process(measure_one, setting, value, options.records)
            say(f"{setting} {value}: {found['processor_seconds']} s")
            yield {"records": options.records, **found}


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--settings", nargs="+", choices=VARIED, default=list(VARIED))
