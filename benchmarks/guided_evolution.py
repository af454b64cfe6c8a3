"""Guided evolution beside aug-pe: the same language model, calls and budget, on one private table without labels.

    python -m benchmarks.guided_evolution --set yelp_augpe --epsilon 1 4

Both evolve the same first texts in as many rounds. Of the texts that each ends with: kernel distance to the private
texts, and FID, precision and recall against as many of them. Embeddings are those of the guide. And the perplexity of
the built-in language model, tuned on the texts, on 100 test texts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

import understudy as us
import understudy.models.catalog as catalog
from benchmarks.evolution import TYPES
from benchmarks.guided import KeptEmbedder
from benchmarks.sets import CACHE, DATA
from understudy.evaluate.metrics.fidelity.embeddings import frechet_values, kernel_values, neighbour_values
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.language import PERPLEXITY, measure_language_model
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.models.collect import CachedChat

_SAMPLING = {"seed": 0, "resamples": 2}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="yelp_augpe", choices=sorted(TYPES))
    parser.add_argument("--epsilon", nargs="+", default=["1", "4"])
    parser.add_argument("--population", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variations", type=int, default=3)
    parser.add_argument("--most", type=int, default=5000)
    parser.add_argument("--max-tokens", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=CACHE / "texts.npz")
    given = parser.parse_args()
    embedder = KeptEmbedder(given.cache)
    catalog.load_embedder = lambda *_args, **_options: embedder  # type: ignore[assignment]
    table = pq.read_table(DATA / given.set / "train.parquet", columns=["text"]).slice(0, given.most)
    texts = table.column("text").to_pylist()
    real = Sample(tuple(texts), None, embedder.embed(texts))
    embedder.save()
    tested = pq.read_table(DATA / given.set / "test.parquet", columns=["text"]).column("text").to_pylist()
    test = Sample(tuple(tested), None).at_most(100, seed=0)
    settings = {
        "population": given.population,
        "rounds": given.rounds,
        "variations": given.variations,
        "blank_probability": 0.0,
    }
    with RunStore.open(CACHE / f"answers-guided-{given.set}", noise="system") as store:
        chat = CachedChat(catalog.load_chat("builtin", seed=given.seed), store.answers)
        catalog.load_chat = lambda *_args, **_options: chat  # type: ignore[assignment]
        for epsilon in given.epsilon:
            for method in (us.GuidedEvolution(**settings), us.AugPE(**settings)):
                start = time.perf_counter()
                with tempfile.TemporaryDirectory() as folder:
                    made = us.run(
                        us.read_corpus(table, text="text"),
                        method,
                        us.Budget(epsilon, "1e-6"),
                        llm="builtin",
                        llm_temperature=0.8,
                        max_tokens=given.max_tokens,
                        records=given.population,
                        document_type=TYPES[given.set],
                        ledger=Ledger.create(Path(folder) / "ledger.sqlite").location,
                        dataset=given.set,
                        seed=given.seed,
                    )
                found = [record.text for record in made.records if record.text]
                ours = Sample(tuple(found), None, embedder.embed(found))
                few = real.at_most(len(found), seed=0)
                values = {
                    value.metric.name: round(value.value or 0.0, 4)
                    for value in (
                        *kernel_values(real, ours, of="ours", **_SAMPLING),
                        *frechet_values(few, ours, of="ours", **_SAMPLING),
                        *neighbour_values(few, ours, of="ours", **_SAMPLING),
                    )
                }
                values |= {
                    f"perplexity ({value.of})": round(value.value or 0.0, 2)
                    for value in measure_language_model(None, test, {"synthetic": ours}, seed=0)
                    if value.metric == PERPLEXITY
                }
                line = {"set": given.set, "method": method.name, "epsilon": epsilon, "texts": len(found), **values}
                print(json.dumps({**line, "seconds": round(time.perf_counter() - start)}), flush=True)


if __name__ == "__main__":
    main()
