"""Guides and noise-aware phrases: what classifiers learn from synthetic texts, guided and not, on many tables.

    python -m benchmarks.guided --set trec --epsilon 6 1 --runs 5                # phrases
    python -m benchmarks.guided --set trec --only defaults                       # with a guide where the run decides so
    python -m benchmarks.guided --set ag_news --epsilon 6 --runs 2 --llm builtin --records 50
    python -m benchmarks.guided --set trec --epsilon 6 --runs 5 stop_words='"none"'
    python -m benchmarks.guided --set sgd --llm builtin --only zero-shot max_tokens=80   # from the labels alone

Whole runs with ledgers of their own. Each row: accuracy on the real test texts of classifiers of embeddings (the
guide's own embedder: not the only judge), of TF-IDF, and with ``--encoder`` of an encoder tuned on the synthetic texts;
macro F1 of the same, which says more where labels are of very different size; distinct word pairs (of 1,500 words),
self-BLEU, precision, recall and coverage, FID and kernel distance to real texts, and with a language model phrases kept
and texts complete. ``real`` is as many real texts. Embeddings are kept by text, in memory and in ``--cache``, since
five runs read the same private texts.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

import understudy as us
import understudy.models.catalog as catalog
from benchmarks.sets import CACHE, DATA
from understudy.evaluate.metrics.fidelity.embeddings import frechet_distance, kernel_distance, neighbour_values
from understudy.evaluate.metrics.fidelity.texts import distinct_values, self_bleu_values
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.evaluate.metrics.utility.language import measure_released_model
from understudy.ledger import Ledger
from understudy.text.vocabulary.words import split_words

LABELS = {
    **{"trec": "label_name", "banking77": "label_name", "ag_news": "label_name", "dbpedia14": "label_name"},
    **{"sgd": "domain", "mit_movies": "genre", "yelp_augpe": "label_category", "medquad": "label"},
}
TYPES = {
    **{"trec": "question", "banking77": "customer message to a bank", "ag_news": "news article"},
    **{"dbpedia14": "encyclopedia entry", "sgd": "customer service dialogue", "mit_movies": "question about films"},
    **{"yelp_augpe": "review", "medquad": "answer to a medical question"},
}
PER_LABEL = {"banking77": 40, "sgd": 50, "mit_movies": 50}
_WORDS, _SAMPLING = 1500, {"seed": 0, "resamples": 2}
LEAST = 40  # records that a label has, of sets with a tail of labels


class KeptEmbedder:
    """The built-in embedder, which embeds no text twice."""

    def __init__(self, cache: Path) -> None:
        self._embedder, self._cache = catalog.load_embedder("builtin"), cache
        self._known: dict[bytes, NDArray[np.float32]] = {}
        if cache.exists():
            kept = np.load(cache)
            self._known = dict(zip(kept["keys"].tolist(), kept["vectors"], strict=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest().encode()[:32] for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        if new:
            self._known |= dict(zip(new, self._embedder.embed(list(new.values())), strict=True))
        return np.stack([self._known[key] for key in keys]) if keys else self._embedder.embed([])

    def save(self) -> None:
        keys, vectors = np.array(list(self._known), dtype="S32"), np.stack(list(self._known.values()))
        self._cache.parent.mkdir(parents=True, exist_ok=True)
        np.savez(self._cache, keys=keys, vectors=vectors)


def table(name: str, part: str, most: int | None = None) -> pa.Table:
    """``text`` and ``label`` of a set, records at random where there are more than ``most``."""
    rows = pq.read_table(DATA / name / f"{part}.parquet", columns=["text", LABELS[name]])
    rows = rows.rename_columns(["text", "label"])
    rows = rows.filter(pc.is_valid(rows["label"]))
    rows = rows.set_column(1, "label", pc.cast(rows["label"], pa.string()))
    rows = rows.filter(pc.not_equal(rows["label"], ""))
    return rows.take(np.random.default_rng(0).permutation(rows.num_rows)[:most])


def sample(texts: list[str], labels: list[str], embedder: KeptEmbedder) -> Sample:
    return Sample(tuple(texts), tuple(labels), embedder.embed(texts))


def scores(train: Sample, test: Sample, real: Sample, *, encoder: bool) -> dict[str, float]:
    kinds = ("embedding", "tf-idf", *(("encoder",) if encoder else ()))
    found = {
        f"{value.settings['classifier']}{' F1' if value.metric.name == 'macro_f1' else ''}": value.value or 0.0
        for value in measure_classifiers(None, test, {"synthetic": train}, kinds=kinds, seeds=1)
        if value.metric.name in ("accuracy", "macro_f1")
    }
    words = [split_words(text) for text in train.texts]
    total = min(_WORDS, sum(map(len, words)))
    for value in (
        *distinct_values(words, "synthetic", total=total, seed=0, resamples=2),
        *self_bleu_values(train.texts, "synthetic", seed=0, resamples=2),
        *neighbour_values(real.at_most(len(train), seed=0), train.at_most(len(real), seed=0), of="x", **_SAMPLING),
    ):
        found[" ".join([value.metric.name, *map(str, value.settings.values())])] = value.value or 0.0
    found["FID"] = frechet_distance(real.embeddings, train.embeddings)
    found["kernel x 1000"] = 1000 * float(kernel_distance(real.embeddings, train.embeddings)[0])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", required=True, choices=sorted(LABELS))
    parser.add_argument("--epsilon", nargs="+", default=["6", "1"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--records", type=int, help="per label")
    parser.add_argument("--most", type=int, help="private records")
    parser.add_argument("--test", type=int, default=3000)
    parser.add_argument("--llm", default="none")
    parser.add_argument("--method", default="DPKPS")
    parser.add_argument("--only", choices=["defaults", "guided", "unguided", "real", "zero-shot"])
    parser.add_argument("--encoder", action="store_true")
    parser.add_argument("--plain", action="store_true", help="of dp-finetune: begin at the plain built-in model")
    parser.add_argument("--cache", type=Path, default=CACHE / "texts.npz")
    parser.add_argument("--out", type=Path)
    parser.add_argument("parameters", nargs="*", help="name=value, of the method or the run")
    given = parser.parse_intermixed_args()
    settings = {name: json.loads(value) for name, _, value in (each.partition("=") for each in given.parameters)}
    cls = getattr(us, given.method)
    if given.plain:
        cls.from_writer = False
    own = {name: settings.pop(name) for name in list(settings) if name in cls.parameters.model_fields}
    embedder = KeptEmbedder(given.cache)
    catalog.load_embedder = lambda *_args, **_options: embedder  # type: ignore[assignment]
    private, test_rows = table(given.set, "train", given.most), table(given.set, "test", given.test)
    counts = {row["values"]: row["counts"] for row in pc.value_counts(private["label"]).to_pylist()}
    labels = sorted(label for label, count in counts.items() if count >= LEAST)
    private = private.filter(pc.is_in(private["label"], pa.array(labels)))
    test_rows = test_rows.filter(pc.is_in(test_rows["label"], pa.array(labels)))
    per_label = given.records or PER_LABEL.get(given.set, 100)
    test = sample(test_rows["text"].to_pylist(), test_rows["label"].to_pylist(), embedder)
    real = sample(private["text"].to_pylist(), private["label"].to_pylist(), embedder)
    embedder.save()

    def show(name: str, epsilon: str, rows: list[dict[str, float]]) -> None:
        mean = {key: round(float(np.mean([row[key] for row in rows])), 4) for key in rows[0]}
        spread = {key: round(float(np.std([row[key] for row in rows])), 4) for key in ("embedding", "tf-idf")}
        line = {"set": given.set, "rows": name, "epsilon": epsilon, "runs": len(rows), **mean, "std": spread}
        line |= {"settings": {**own, **settings, "llm": given.llm, "method": given.method, "records": per_label}}
        print(json.dumps(line), flush=True)
        if given.out:
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")

    few = real.at_most(2000, seed=0)
    if given.only in (None, "real"):
        rows = []
        for seed in range(given.runs):
            order = np.random.default_rng(seed).permutation(len(real))
            names = np.array(real.labels)[order]
            picked = np.concatenate([order[names == label][:per_label] for label in labels])
            rows.append(scores(real.take(picked), test, few, encoder=given.encoder))
        show("real", "", rows)
    if given.only == "zero-shot" or (given.only is None and given.llm != "none"):
        rows = []
        for run in range(given.runs):
            written = us.baseline(
                labels=labels,
                records_per_label=per_label,
                document_type=TYPES[given.set],
                llm=given.llm,
                seed=run,
                **settings,
            )
            texts, names = [each.text for each in written], [labels[each.label] for each in written]
            rows.append(scores(sample(texts, names, embedder), test, few, encoder=given.encoder))
        show("zero-shot", "", rows)
    for epsilon in given.epsilon:
        for name, decided in (("defaults", {}), ("guided", {"guide": True}), ("unguided", {"guide": False})):
            if given.only not in (None, name):
                continue
            rows = []
            for run in range(given.runs):
                start = time.perf_counter()
                with tempfile.TemporaryDirectory() as folder:
                    made = us.run(
                        us.read_corpus(private, text="text", label="label", labels=labels),
                        cls(**own),
                        us.Budget(epsilon, "1e-6"),
                        llm=given.llm,
                        records_per_label=per_label,
                        document_type=TYPES[given.set],
                        ledger=Ledger.create(Path(folder) / "ledger.sqlite").location,
                        dataset=given.set,
                        seed=run,
                        **decided,
                        **settings,
                    )
                texts = [record.text for record in made.records if record.text]
                names = [labels[record.label] for record in made.records if record.text]
                found = scores(sample(texts, names, embedder), test, few, encoder=given.encoder)
                if given.llm != "none":
                    told = [record.provenance for record in made.records]
                    asked = sum(len(each["phrases"]) for each in told)
                    found["kept"] = sum(len(each["kept"]) for each in told) / max(asked, 1)
                    found["complete"] = float(np.mean([each["finish"] == "stop" for each in told]))
                if cls.needs.generation_model:
                    tuned = cls(**own).tuned_model(made.release, catalog.load_causal("builtin"))
                    told = {value.of: value for value in measure_released_model(test, tuned, tokens=96, test_texts=200)}
                    found |= {f"perplexity {of}": value.value for of, value in told.items()}
                found["guide"] = float("guide" in made.release.arrays)
                rows.append({**found, "terms": len(made.release.terms), "seconds": time.perf_counter() - start})
            show(name, epsilon, rows)


if __name__ == "__main__":
    main()
