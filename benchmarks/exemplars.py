"""Few-shot: exemplars by the built-in model, with the noise of a budget and without, and what they teach in a prompt.

Whole releases with a ledger of their own. Of the exemplars: how many ended, how long a token took.
Where a set has labels, the judge of Tang et al. 2023: the built-in model is shown four exemplars and labels real test
texts by the label's probability, calibrated (``measure_in_context``). ``--real`` makes nothing: it shows four real
texts, and none. A row goes to ``--results``, and with ``--beside`` to ``results/beside/papers.json``.

    python -m benchmarks.exemplars --set ag_news --epsilon 4 --labels Sports Business
    python -m benchmarks.exemplars --set mit_movies --no-noise
    python -m benchmarks.exemplars --set trec --epsilon 4 --exemplars 1 --subsets 80 --per-subset 1 --beside
    python -m benchmarks.exemplars --set trec --real --beside
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import understudy as us
from benchmarks.results import add_row
from benchmarks.sets import CACHE, DATA
from benchmarks.textquality import known_pairs, known_words, nearness
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.language import measure_in_context
from understudy.ledger import Ledger
from understudy.methods.few_shot.method import FewShot
from understudy.methods.few_shot.plan import mechanism_of

DELTA = "1e-6"
FILMS = {"type": "film question", "private_text_tokens": 24, "exemplar_tokens": 24}
NAMES = {
    "ag_news": {"Sci/Tech": "Technology"},
    "trec": dict(
        zip(
            ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"),
            ("Abbreviation", "Description", "Entity", "Person", "Location", "Number"),
            strict=True,
        )
    ),
    "dbpedia14": {
        "EducationalInstitution": "School",
        "OfficeHolder": "Politician",
        "MeanOfTransportation": "Transportation",
        "NaturalPlace": "Nature",
        "WrittenWork": "Book",
    },
}
"""Labels in words, those of Tang et al.; other sets have words."""
SETS: dict[str, dict[str, Any]] = {
    "ag_news": {"label": "label_name", "type": "news", "private_text_tokens": 60, "exemplar_tokens": 45},
    "trec": {"label": "label_name", "type": "question", "private_text_tokens": 24, "exemplar_tokens": 15},
    "dbpedia14": {
        **{"label": "label_name", "type": "encyclopedia article"},
        **{"private_text_tokens": 40, "exemplar_tokens": 24},
    },
    "mit_movies": {"label": None, **FILMS},
    "mit_genres": {
        **{"data": "mit_movies", "label": "genre", **FILMS, "exemplar_tokens": 15},
        "labels": ["action", "animated", "comedy", "drama", "horror", "musical"],
    },
}
"""The six genres are those of most questions whose names do not hold one another."""


def table_of(name: str, part: str, labels: list[str]) -> pa.Table:
    """The rows of ``labels``, or of all, with the label in words as ``label``."""
    chosen = SETS[name]
    table = pq.read_table(DATA / chosen.get("data", name) / f"{part}.parquet")
    if chosen["label"] is None:
        return table.select(["text"])
    names = NAMES.get(name, {})
    words = [names.get(label, label) for label in table[chosen["label"]].to_pylist()]
    table = pa.table({"text": table["text"], "label": pa.array(words, pa.string())})
    wanted = labels or chosen.get("labels")
    return table.filter(pc.is_in(table["label"], pa.array(wanted))) if wanted else table


def in_context(shown: Sample, test: pa.Table, *, tests: int, shots: tuple[int, ...] = (4,)) -> dict[str, float]:
    """Accuracy of the built-in model on real test texts: ``zero-shot``, or after four texts of ``shown``."""
    rows = test.take(np.random.default_rng(0).permutation(test.num_rows)[:tests])
    real = Sample(tuple(rows["text"].to_pylist()), tuple(rows["label"].to_pylist()))
    labels = sorted(set(test["label"].to_pylist()))
    found = measure_in_context(
        real, {"shown": shown}, label_names=labels, shots=shots, repetitions=3, test_texts=tests, tokens=48
    )
    return {"zero-shot" if value.of != "shown" else "four-shot": round(value.value or 0.0, 3) for value in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="ag_news", choices=sorted(SETS))
    parser.add_argument("--labels", nargs="*", default=[], help="of the set's; by default all")
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--no-noise", action="store_true")
    parser.add_argument("--real", action="store_true", help="real texts in the prompt, and none")
    parser.add_argument("--noise", default="gaussian", choices=["gaussian", "votes"])
    parser.add_argument("--exemplars", type=int, default=2, help="of each label")
    parser.add_argument("--subsets", type=int, default=10)
    parser.add_argument("--per-subset", type=int, default=2)
    parser.add_argument("--tokens", type=int, help="of an exemplar; by default the set's")
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--gauges", action="store_true", help="whether texts look like language and like the set")
    parser.add_argument("--tests", type=int, default=200, help="test texts of the judge")
    parser.add_argument("--results", type=Path, default=CACHE / "exemplars.jsonl")
    parser.add_argument("--beside", action="store_true")
    arguments = parser.parse_args()
    chosen = SETS[arguments.set]
    table = table_of(arguments.set, "train", arguments.labels)
    names = sorted(set(table["label"].to_pylist())) if chosen["label"] else []
    command = "python -m benchmarks.exemplars " + " ".join(each for each in sys.argv[1:] if each != "--beside")
    found: dict[str, Any] = {"what": "few-shot", "set": arguments.set, "epsilon": arguments.epsilon}
    if arguments.real:
        some = table.take(np.random.default_rng(1).permutation(table.num_rows)[:1000])
        shown = Sample(tuple(some["text"].to_pylist()), tuple(some["label"].to_pylist()))
        found |= {"epsilon": "real", "tests": arguments.tests}
        test = table_of(arguments.set, "test", arguments.labels)
        found |= in_context(shown, test, tests=arguments.tests, shots=(0, 4))
    else:
        found |= _made(arguments, chosen, table, names)
    found |= {"command": command}
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    with arguments.results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(found, ensure_ascii=False) + "\n")
    print(json.dumps(found, ensure_ascii=False, indent=1), flush=True)
    if arguments.beside:
        kept = ("arrays", "check", "exemplars")
        add_row("beside/papers", {name: value for name, value in found.items() if name not in kept}, ("command",))


def _made(arguments: argparse.Namespace, chosen: dict[str, Any], table: pa.Table, names: list[str]) -> dict[str, Any]:
    """One release, and what is to be said of it."""
    labelled = {"label": "label", "labels": names} if names else {}
    longest = arguments.tokens or chosen["exemplar_tokens"]
    method = FewShot(
        sampling_rate=arguments.subsets * arguments.per_subset * max(1, len(names)) / table.num_rows,
        subsets=arguments.subsets,
        examples_per_subset=arguments.per_subset,
        tokens=arguments.exemplars * longest,
        exemplar_tokens=longest,
        exemplars=arguments.exemplars,
        private_text_tokens=chosen["private_text_tokens"],
        candidates=arguments.candidates,
        noise=arguments.noise,
    )
    budget = us.Budget(arguments.epsilon, DELTA)
    mechanism = mechanism_of(method, budget)
    with tempfile.TemporaryDirectory() as folder:
        wall, core = time.perf_counter(), time.process_time()
        release = us.release(
            us.read_corpus(table, text="text", **labelled),
            method,
            budget,
            llm="builtin",
            ledger=Ledger.create(f"{folder}/ledger.sqlite").location,
            output=f"{folder}/out",
            dataset="benchmark",
            document_type=chosen["type"],
            insecure_no_noise=arguments.no_noise,
        )
        wall, core = time.perf_counter() - wall, time.process_time() - core
    texts = list(release.strings["exemplars"])
    usable, label = release.arrays["usable"], release.arrays["label"]
    found = {
        "noise": "none" if arguments.no_noise else arguments.noise,
        "records": table.num_rows,
        "subsets": arguments.subsets,
        "shown": arguments.per_subset,
        "candidates": arguments.candidates,
        "tokens paid": mechanism.tokens,
        "noise multiplier": round(mechanism.noise_multiplier, 3),
        "noise on a probability": round(2**0.5 * mechanism.noise_multiplier / mechanism.subsets, 4),
        "noisy tokens": int(release.arrays["noisy_tokens"].sum()),
        "exemplars": [[names[place] if names else "", text] for place, text in zip(label.tolist(), texts, strict=True)],
        "usable": int(usable.sum()),
        "ended": int(release.arrays["finished"].sum()),
        "wall_s": round(wall, 1),
        "core_s": round(core, 1),
        "check": release.noise_check.to_json(),
        "arrays": {name: array.tolist() for name, array in release.arrays.items() if array.size < 100},
    }
    if arguments.gauges:
        real = [str(text) for text in table["text"].to_pylist()[::-1]]
        told = {"words": known_words(texts), "pairs": known_pairs(texts), "near": nearness(texts, real)}
        found |= {name: round(value, 3) for name, value in told.items()}
    if names:
        shown = [(texts[row], names[label[row]]) for row in np.flatnonzero(usable).tolist()]
        pool = Sample(tuple(text for text, _ in shown), tuple(name for _, name in shown))
        test = table_of(arguments.set, "test", arguments.labels)
        found |= {"tests": arguments.tests} | in_context(pool, test, tests=arguments.tests)
    return found


if __name__ == "__main__":
    main()
