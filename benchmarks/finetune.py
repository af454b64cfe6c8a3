"""DP-SGD fine-tuning: held-out perplexity of the base model, dp-finetune and training without privacy, by step.

    python -m benchmarks.finetune --set ag_news --epsilon 6 --out DIR      # dp-finetune; --epsilon inf: without privacy
    python -m benchmarks.finetune --set ag_news --epsilon 6 --out DIR --records 3000     # of so many records
    python -m benchmarks.finetune --set europarl --epsilon 3 --out DIR --owners          # speakers are protected

A whole run each (ledger, run store and all); the perplexity at each checkpoint is that of the stored weights.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

import understudy as us
from benchmarks.sets import DATA
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.language import UNTUNED, measure_released_model
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.methods.dp_finetune.method import DPFinetune, NonPrivateFinetune
from understudy.models.catalog import load_causal
from understudy.run.session import Listener

DELTA = "1e-6"
LABELS = {"ag_news": "label_name"}
TYPES = {"ag_news": "news article", "sgd": "customer service dialogue", "europarl": "speech in the European Parliament"}
OWNERS = {"europarl": "speaker"}
SETTINGS: dict[str, Any] = {"private_text_tokens": 96}


def table(name: str, part: str, records: int | None = None, *, owners: bool = False) -> tuple[Any, list[str] | None]:
    """The texts, and their labels where the set has some; with their owners, people's only (no chair's)."""
    rows = pq.read_table(DATA / name / f"{part}.parquet")
    if owners:
        rows = rows.filter(pc.invert(rows.column("is_chair")))
    if records is not None:
        rows = rows.take(np.random.default_rng(0).permutation(rows.num_rows)[:records])
    label = LABELS.get(name)
    kept = ["text", *([label] if label else []), *([OWNERS[name]] if owners else [])]
    return rows.select(kept), rows.column(label).to_pylist() if label else None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="ag_news")
    parser.add_argument("--epsilon", default="6")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=int)
    parser.add_argument("--owners", action="store_true", help="protect owners")
    parser.add_argument("--test-texts", type=int, default=300)
    parser.add_argument("parameters", nargs="*", help="name=value of the method")
    given = parser.parse_args()
    private = given.epsilon != "inf"
    rows, labels = table(given.set, "train", given.records, owners=given.owners)
    owner = OWNERS[given.set] if given.owners else None
    units = len(rows.column(owner).unique()) if owner else rows.num_rows
    settings = {**SETTINGS, "declared_records": units}
    for each in given.parameters:
        name, _, value = each.partition("=")
        settings[name] = json.loads(value)
    method = (DPFinetune if private else NonPrivateFinetune)(**settings)
    names = tuple(sorted(set(labels))) if labels else ()
    label = {"label": LABELS[given.set], "labels": names} if names else {}
    given.out.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, given.out / "private.parquet")
    corpus = us.read_corpus(given.out / "private.parquet", text="text", owner=owner, **label)
    ledger = Ledger.create(given.out / "ledger.sqlite").location
    say = Listener(say=lambda line: print("  ", line, flush=True))
    started = time.perf_counter()
    made = us.release(
        corpus,
        method,
        us.Budget(given.epsilon if private else 6, DELTA),
        document_type=TYPES[given.set],
        output=str(given.out / "run"),
        ledger=ledger,
        dataset=given.set,
        insecure_no_noise=not private,
        listener=say,
    )
    seconds = time.perf_counter() - started
    base = load_causal("builtin")
    tuned = method.tuned_model(made, base)
    test_rows, test_labels = table(given.set, "test")
    test = Sample(tuple(test_rows.column("text").to_pylist()), tuple(test_labels) if test_labels else None)
    found: dict[str, Any] = {"arguments": vars(given) | {"out": str(given.out)}, "seconds": seconds}
    found["mechanism"] = {name: str(charge.event) for charge in made.statement.charges for name in [charge.name]}
    found["noise_check"] = made.noise_check.to_json()["entries"]
    with RunStore.open(given.out / "run" / "private", noise="system" if private else "none") as store:
        parts = sorted((name for name in store.names() if name.startswith("training/")), key=lambda n: int(n[9:]))
        for part in parts:
            stored = store.value(part)
            assert stored is not None
            tuned.trainable.load(stored["weights"])
            values = measure_released_model(
                test, tuned, tokens=settings["private_text_tokens"], test_texts=given.test_texts
            )
            by_name = {value.of: value.value for value in values}
            found.setdefault("perplexity", {})[part[9:]] = by_name
            print(part, by_name, flush=True)
    found["untuned"] = by_name[UNTUNED]
    (given.out / "result.json").write_text(json.dumps(found, indent=1, default=str))


if __name__ == "__main__":
    main()
