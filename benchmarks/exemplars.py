"""Few-shot: exemplars of AG News and of film questions by the built-in model, with the noise of a budget and without.

Whole releases with a ledger of their own. Of the exemplars: how many ended, how long one took, gauges of the texts.

    python -m benchmarks.exemplars --set ag_news --epsilon 4 --results FILE
    python -m benchmarks.exemplars --set mit_movies --no-noise --results FILE
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import understudy as us
from benchmarks.sets import CACHE, DATA
from benchmarks.textquality import known_pairs, known_words, nearness
from understudy.ledger import Ledger
from understudy.methods.few_shot.method import FewShot
from understudy.methods.few_shot.plan import mechanism_of

DELTA = "1e-6"
SETS: dict[str, dict[str, Any]] = {
    "ag_news": {"labels": ["Sports", "Business"], "type": "news", "private_text_tokens": 60, "exemplar_tokens": 45},
    "mit_movies": {"labels": [], "type": "film question", "private_text_tokens": 24, "exemplar_tokens": 24},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="ag_news", choices=sorted(SETS))
    parser.add_argument("--epsilon", type=float, default=4.0)
    parser.add_argument("--no-noise", action="store_true")
    parser.add_argument("--noise", default="gaussian", choices=["gaussian", "votes"])
    parser.add_argument("--exemplars", type=int, default=2, help="of each label")
    parser.add_argument("--subsets", type=int, default=10)
    parser.add_argument("--per-subset", type=int, default=2)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--results", type=Path, default=CACHE / "exemplars.jsonl")
    arguments = parser.parse_args()
    chosen = SETS[arguments.set]
    table = pq.read_table(DATA / arguments.set / "train.parquet")
    labelled: dict[str, Any] = {}
    if chosen["labels"]:
        table = table.filter(pc.is_in(table["label_name"], pa.array(chosen["labels"], pa.large_string())))
        labelled = {"label": "label_name", "labels": chosen["labels"]}
    labels = max(1, len(chosen["labels"]))
    method = FewShot(
        sampling_rate=arguments.subsets * arguments.per_subset * labels / table.num_rows,
        subsets=arguments.subsets,
        examples_per_subset=arguments.per_subset,
        tokens=arguments.exemplars * chosen["exemplar_tokens"],
        exemplar_tokens=chosen["exemplar_tokens"],
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
    texts = [str(text) for text in next(iter(release.strings.values()))]
    found = {
        "set": arguments.set,
        "noise": "none" if arguments.no_noise else arguments.noise,
        "epsilon": arguments.epsilon,
        "records": table.num_rows,
        "subsets": arguments.subsets,
        "shown": arguments.per_subset,
        "candidates": arguments.candidates,
        "tokens paid": mechanism.tokens,
        "noise multiplier": round(mechanism.noise_multiplier, 3),
        "noise on a probability": round(2**0.5 * mechanism.noise_multiplier / mechanism.subsets, 4),
        "wall_s": round(wall, 1),
        "core_s": round(core, 1),
        "words": round(known_words(texts), 3),
        "pairs": round(known_pairs(texts), 3),
        "near": round(nearness(texts, [str(text) for text in table["text"].to_pylist()[::-1]]), 3),
        "check": release.noise_check.to_json(),
        "arrays": {name: array.tolist() for name, array in release.arrays.items() if array.size < 100},
        "texts": texts,
    }
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    with arguments.results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(found, ensure_ascii=False) + "\n")
    print(json.dumps(found, ensure_ascii=False, indent=1), flush=True)


if __name__ == "__main__":
    main()
