"""Utility of DP-KPS without a language model (``--llm none``) on real text: figures (a) and (b).

(a) Sequences: 1000 sequences of 10 terms a label train a classifier that is tested on the test split's own
    sequences (the first 10 terms of V~ in each test text). Features: mean embedding of the terms and indicator of
    each term; logistic regression.
(b) Texts: 100 sequences of 8 terms a label, written as "term, term, ...", are training texts for a logistic
    regression on text embeddings, tested on the real test texts.

Every run is a whole run of the library with a ledger of its own; nothing is tuned on the test texts inside a run.

    python -m benchmarks.utility texts --set ag_news --epsilon 6 --runs 5 [contrast=0 ...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import secrets
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import understudy as us
import understudy.models.catalog
from benchmarks.sets import VOCABULARIES, TextSet, embed, embedder, load_set
from understudy.ledger import Ledger
from understudy.text.vocabulary.words import TermMatcher


def one_run(texts: TextSet, method: us.DPKPS, epsilon: float, delta: str, count: int) -> us.Result:
    """A whole run on the training split, ``count`` sequences a label."""
    corpus = us.read_corpus(texts.train, text="text", label="label", labels=list(texts.labels))
    with tempfile.TemporaryDirectory() as folder:
        return us.run(
            corpus,
            method,
            us.Budget(epsilon, delta),
            llm="none",
            records_per_label=count,
            ledger=Ledger.create(Path(folder) / "ledger.sqlite").location,
            dataset=texts.name,
            seed=int.from_bytes(secrets.token_bytes(3), "big"),
        )


def texts_accuracy(result: us.Result, texts: TextSet) -> float:
    """(b): trained on the synthetic texts, tested on the real ones."""
    train = embedder().embed([record.text for record in result.records])
    labels = [record.label for record in result.records]
    model = LogisticRegression(max_iter=2000, C=10.0).fit(train, labels)
    return float(model.score(embed(texts.test_texts), texts.test_labels))


def sequence_features(rows: list[list[int]], embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean embedding of the terms, and which terms there are (scaled to comparable size)."""
    features = np.zeros((len(rows), embeddings.shape[1] + len(embeddings)), dtype=np.float32)
    for row, terms in enumerate(rows):
        if terms:
            features[row, : embeddings.shape[1]] = embeddings[terms].mean(axis=0)
            features[row, embeddings.shape[1] + np.asarray(terms)] = 1 / np.sqrt(len(terms)) / 2
    return features


def sequences_accuracy(result: us.Result, texts: TextSet, length: int) -> float:
    """(a): trained on synthetic sequences, tested on the test split's own."""
    terms = list(result.release.terms)
    index = {term: position for position, term in enumerate(terms)}
    embeddings = embedder().embed(terms)
    synthetic = [[index[term] for term in record.provenance["phrases"]] for record in result.records]
    labels = [record.label for record in result.records]
    matcher = TermMatcher(terms)
    real = [matcher.first_distinct(text, length) for text in texts.test_texts]
    model = LogisticRegression(max_iter=300, C=1.0).fit(sequence_features(synthetic, embeddings), labels)
    return float(model.score(sequence_features(real, embeddings), texts.test_labels))


@contextlib.contextmanager
def shared_embedder():
    """Load the embedder once for all runs."""
    original = understudy.models.catalog.load_embedder
    understudy.models.catalog.load_embedder = lambda spec: embedder()
    try:
        yield
    finally:
        understudy.models.catalog.load_embedder = original


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["texts", "sequences"])
    parser.add_argument("--set", default="ag_news")
    parser.add_argument("--epsilon", type=float, default=6)
    parser.add_argument("--delta", default="1e-6")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--vocabulary", default="glove6b_400k.parquet")
    parser.add_argument("parameters", nargs="*", help="name=value, parameters of DP-KPS")
    arguments = parser.parse_intermixed_args()
    texts = load_set(arguments.set)
    chosen: dict[str, Any] = {"length": 8 if arguments.task == "texts" else 10}
    for pair in arguments.parameters:
        name, value = pair.split("=")
        chosen[name] = json.loads(value) if value[:1] in "0123456789.[ntf" else value
    vocabulary = arguments.vocabulary
    method = us.DPKPS(
        vocabulary=vocabulary if vocabulary == "built-in" else str(VOCABULARIES / vocabulary),
        vocabulary_is_public=True,
        **chosen,
    )
    accuracies, seconds = [], []
    with shared_embedder():
        for _ in range(arguments.runs):
            started = time.perf_counter()
            count = 100 if arguments.task == "texts" else 1000
            result = one_run(texts, method, arguments.epsilon, arguments.delta, count)
            seconds.append(time.perf_counter() - started)
            if arguments.task == "texts":
                accuracies.append(texts_accuracy(result, texts))
            else:
                accuracies.append(sequences_accuracy(result, texts, method.length))
    print(
        json.dumps(
            {
                "task": arguments.task,
                "set": arguments.set,
                "epsilon": arguments.epsilon,
                "vocabulary": vocabulary,
                **chosen,
                "mean": round(float(np.mean(accuracies)), 4),
                "std": round(float(np.std(accuracies, ddof=1)), 4) if len(accuracies) > 1 else None,
                "runs": [round(value, 4) for value in accuracies],
                "seconds a run": round(float(np.median(seconds)), 1),
                "above the floor": result.release.noise_check.to_json(),
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
