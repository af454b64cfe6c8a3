"""Utility of DP-KPS with the built-in language model writing the texts (figure b with an LLM).

A whole run on the training split, 100 texts a label; a logistic regression on their embeddings is tested on the
real test texts. Prints accuracy, the share of seed phrases kept, and keeps the synthetic texts in the cache folder.

    python -m benchmarks.llm --set ag_news --epsilon 6 --runs 2
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

import understudy as us
from benchmarks.corpora import prompt_file
from benchmarks.sets import CACHE, VOCABULARIES, load_set
from benchmarks.utility import texts_accuracy
from understudy.ledger import Ledger

TYPES = {"ag_news": "news article", "dbpedia14": "encyclopedia article"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="ag_news", choices=sorted(TYPES))
    parser.add_argument("--epsilon", type=float, default=6)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--samples", type=int, default=4)
    arguments = parser.parse_args()
    texts = load_set(arguments.set)
    method = us.DPKPS(
        vocabulary=str(VOCABULARIES / "glove6b_400k.parquet"), vocabulary_is_public=True, length=arguments.length
    )
    for number in range(arguments.runs):
        started = time.perf_counter()
        corpus = us.read_corpus(texts.train, text="text", label="label", labels=list(texts.labels))
        with tempfile.TemporaryDirectory() as folder:
            result = us.run(
                corpus,
                method,
                us.Budget(arguments.epsilon, "1e-6"),
                llm="builtin",
                records_per_label=arguments.count,
                ledger=Ledger.create(Path(folder) / "ledger.sqlite").location,
                dataset=texts.name,
                seed=number,
                document_type=TYPES[texts.name],
                samples=arguments.samples,
                llm_temperature=0.6,
                max_tokens=80,
                prompt=prompt_file(Path(folder) / "prompt.yaml", examples_per_prompt=4),
            )
        kept = sum(len(record.provenance["kept"]) for record in result.records)
        asked = sum(len(record.provenance["phrases"]) for record in result.records)
        CACHE.mkdir(parents=True, exist_ok=True)
        rows = [{"label": texts.label_names[r.label], "text": r.text, **r.provenance} for r in result.records]
        (CACHE / f"llm-{texts.name}-{number}.json").write_text(json.dumps(rows, indent=1), "utf-8")
        print(
            json.dumps(
                {
                    "set": texts.name,
                    "epsilon": arguments.epsilon,
                    "length": arguments.length,
                    "samples": arguments.samples,
                    "accuracy": round(texts_accuracy(result, texts), 4),
                    "phrases kept": round(kept / asked, 3),
                    "complete": round(float(np.mean([r.provenance["finish"] == "stop" for r in result.records])), 3),
                    "words a text": round(float(np.mean([len(r.text.split()) for r in result.records])), 1),
                    "missing": result.missing,
                    "seconds": round(time.perf_counter() - started, 1),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
