"""Private evolution of texts beside ``pe`` of github.com/microsoft/DPSDA: the same model, embedder, budget and calls.

    python -m benchmarks.beside_texts yelp_augpe ours --seed 0 [--blanks 0]
    PYTHONPATH=src:.:DPSDA python -m benchmarks.beside_texts yelp_augpe pe --seed 0 --prompts DPSDA/example/text
    python -m benchmarks.beside_texts yelp_augpe real
    python -m benchmarks.beside_texts yelp_augpe votes --seed 0    # 60 of its first texts, by 1 to 10 votes per record

1,500 records, 60 texts, 3 rounds, 4 candidates per text (the L of pe's own examples), epsilon 4, delta 1e-6, answers of
at most 100 tokens at temperature 0.7, half of the words blank. ``ours`` keeps its 240 first texts in ``--kept``; ``pe``
begins with those of the same seed, varies them by the prompts of its own examples (less the lines on columns that these
tables lack) with the same model, and asks for no variation after the last vote: 360 calls each. ``real`` are 60 others.

``pe`` runs in a Python of its own or in ours. Its modules import torchvision, clip, clean-fid, fld, diffusers and other
packages for images and tables, which no text needs: empty modules of these names do. Blanks are by the tokens of the
built-in model, as pe's own tokenizer (tiktoken) is fetched from the network.

A row goes to ``results/beside/texts.json``. Seconds are those of the processor from the first texts on.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import understudy as us
import understudy.models.catalog as catalog
from benchmarks.guided import KeptEmbedder
from benchmarks.results import add_row
from benchmarks.sets import CACHE, DATA
from understudy.evaluate.metrics.fidelity.embeddings import frechet_distance, kernel_distance, neighbour_values
from understudy.evaluate.metrics.fidelity.texts import self_bleu_values
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.language import measure_language_model
from understudy.ledger import Ledger
from understudy.methods.shared.evolution.embeddings import Block, integer_vectors
from understudy.methods.shared.evolution.variation import Answers, TextAPI
from understudy.methods.shared.specs import VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.models.collect import collect
from understudy.models.types import ChatRequest, Message
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit

RECORDS, TEXTS, ROUNDS, VARIATIONS, TOKENS, TEMPERATURE = 1500, 60, 3, 4, 100, 0.7
EPSILON, DELTA = 4, 1e-6
ENDS = (".", "!", "?", '"', "'", ")", "…")
TYPES = {"yelp_augpe": "review", "pubmed": "medical abstract"}
LENGTHS: dict[str, dict[str, float]] = {
    "yelp_augpe": {"word_count_std": 20, "token_to_word_ratio": 1.2},
    "pubmed": {"word_count_std": 36},
}
"""Of pe's examples ``yelp_openai`` and ``pubmed_openai``."""


def ours(name: str, seed: int, texts: list[str], first: Path, *, blanks: float) -> tuple[float, list[str]]:
    """When the first texts were there, and the survivors; the first texts are read from ``first`` or kept there."""
    began: list[float] = []
    asked = TextAPI.random

    def begin(api: TextAPI, counts: Sequence[int], *, stage: int) -> Answers:
        if first.exists():
            given = tuple(json.loads(first.read_text()))
            new, labels = np.full(len(given), -1, dtype=np.int64), np.zeros(len(given), np.int32)
            made = Answers(given, labels, new, ("given",) * len(given), np.zeros(1, np.int64))
        else:
            made = asked(api, counts, stage=stage)
            first.write_text(json.dumps(made.texts))
        began.append(time.process_time())
        return made

    TextAPI.random = begin
    with tempfile.TemporaryDirectory() as folder:
        made = us.release(
            us.read_corpus(pa.table({"text": texts}), text="text"),
            us.AugPE(population=TEXTS, rounds=ROUNDS, variations=VARIATIONS, blank_probability=blanks),
            us.Budget(EPSILON, str(DELTA)),
            llm="builtin",
            output=f"{folder}/out",
            ledger=Ledger.create(f"{folder}/ledger.sqlite").location,
            dataset=name,
            document_type=TYPES[name],
            max_tokens=TOKENS,
            llm_temperature=TEMPERATURE,
            seed=seed,
            expected_records=len(texts),
        )
    every = made.strings["texts"]
    return began[0], [every[row] for row in made.arrays["survivors"].tolist()]


def theirs(name: str, seed: int, texts: list[str], first: Path, *, prompts: Path) -> tuple[float, list[str]]:
    """The same by pe's own runner, histogram, noise and text API, around our model and embedder."""
    import pandas as pd
    from pe.api.text import LLMAugPE
    from pe.constant.data import LABEL_ID_COLUMN_NAME, TEXT_DATA_COLUMN_NAME, VARIATION_API_FOLD_ID_COLUMN_NAME
    from pe.data import Data
    from pe.embedding import Embedding
    from pe.histogram import NearestNeighbors
    from pe.llm import LLM
    from pe.population import PEPopulation
    from pe.runner import PE

    begin = json.loads(first.read_text())
    chat, calls = catalog.load_chat("builtin", seed=seed), 0

    class BuiltIn(LLM):
        def get_responses(self, requests: Any, **_: Any) -> list[str]:
            nonlocal calls
            asked = []
            for request in requests:
                most = min(TOKENS, request.generation_args.get("max_completion_tokens", TOKENS))
                turns = tuple(Message(each["role"], each["content"]) for each in request.messages)
                calls += 1
                asked.append(ChatRequest(turns, max_tokens=most, temperature=TEMPERATURE, top_p=0.95, sample=calls))
            return [answer.text.strip() for answer in collect(chat, asked)]

    class Embedded(Embedding):
        def compute_embedding(self, data: Any) -> Any:
            vectors = catalog.load_embedder("builtin").embed(data.data_frame[TEXT_DATA_COLUMN_NAME].tolist())
            data.data_frame[self.column_name] = pd.Series(list(vectors), index=data.data_frame.index)
            return data

    class FromOurs(LLMAugPE):
        rounds = 0

        def random_api(self, label_info: Any, num_samples: int) -> Any:
            given = {TEXT_DATA_COLUMN_NAME: begin[:num_samples], LABEL_ID_COLUMN_NAME: 0}
            return Data(data_frame=pd.DataFrame(given), metadata={"label_info": [label_info]})

        def variation_api(self, syn_data: Any) -> Any:
            self.rounds += 1
            if self.rounds > (ROUNDS - 1) * (VARIATIONS - 1):
                return Data(data_frame=syn_data.data_frame.copy(), metadata=syn_data.metadata)
            return super().variation_api(syn_data)

    class Pieces:
        encode = staticmethod(lambda text, **_: chat._tokenizer(text, add_special_tokens=False)["input_ids"])
        decode = staticmethod(lambda tokens: chat._tokenizer.decode(tokens))

    example = json.loads((prompts / f"{name.removesuffix('_augpe')}_openai" / "variation_api_prompt.json").read_text())
    for turn in example["message_template"]:
        turn["content"] = re.sub(r"^Business Category: .*\n", "", turn["content"], flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        asked = f"{folder}/prompts.json"
        Path(asked).write_text(json.dumps(example))
        api = FromOurs(BuiltIn(), asked, asked, min_word_count=25, blank_probabilities=0.5, **LENGTHS[name])
        api._encoding, api._mask_token = Pieces, Pieces.encode("_")[0]
        private = pd.DataFrame({TEXT_DATA_COLUMN_NAME: texts, LABEL_ID_COLUMN_NAME: 0})
        info = {"label_info": [{"name": "all", "column_values": {}}]}
        np.random.seed(seed)  # noqa: NPY002 - the noise of pe
        began = time.process_time()
        population = PEPopulation(
            api=api,
            initial_variation_api_fold=0,
            next_variation_api_fold=VARIATIONS - 1,
            keep_selected=True,
            selection_mode="rank",
        )
        nearest = NearestNeighbors(embedding=Embedded(), mode="L2", lookahead_degree=0, backend="sklearn")
        runner = PE(priv_data=Data(data_frame=private, metadata=info), population=population, histogram=nearest)
        schedule = [len(begin), *[TEXTS] * ROUNDS]
        made = runner.run(schedule, delta=DELTA, epsilon=EPSILON, checkpoint_path=folder, save_checkpoint=False)
    chosen = made.data_frame[made.data_frame[VARIATION_API_FOLD_ID_COLUMN_NAME] == -1]
    return began, [str(text) for text in chosen[TEXT_DATA_COLUMN_NAME]]


def sample(texts: list[str]) -> Sample:
    return Sample(tuple(texts), None, catalog.load_embedder("builtin").embed(texts))


def distances(real: Sample, made: Sample) -> dict[str, float]:
    """Of embeddings, from the private records."""
    found = {
        "fid": frechet_distance(real.embeddings, made.embeddings),
        "kernel": 1000 * float(kernel_distance(real.embeddings, made.embeddings)[0]),
    }
    told = neighbour_values(real, made, of="made", seed=0, resamples=2)
    return found | {each.metric.name: float(each.value) for each in told if not each.settings}


def voted(real: Sample, texts: list[str], *, nearest: int) -> dict[str, float]:
    """60 of the first texts by one vote of aug-pe, for its ``nearest``; means over four samples of the noise."""
    made = sample(texts)
    labels = [np.zeros(len(each), np.int32) for each in (real, made)]
    records, candidates = (integer_vectors(each.embeddings) for each in (real, made))
    query = VoteHistogram(VotesSpec(Unit("record"), nearest), candidates, labels[1], "centred")
    votes = query.of_batch(Block(records, labels[0], np.arange(len(real)))) / COUNT_GRID
    noise = gaussian_split(us.Budget(EPSILON, str(DELTA)), [1] * ROUNDS)[0]
    found = []
    for place in range(4):
        noisy = votes + np.random.default_rng(place).normal(0, noise, len(votes))
        found.append(distances(real, made.take(np.argsort(-noisy, kind="stable")[:TEXTS])))
    return {key: round(fmean(each[key] for each in found), 4) for key in found[0]}


def scores(real: Sample, texts: list[str]) -> dict[str, float]:
    """Beside the private records; perplexity is theirs by a language model tuned on ``texts``."""
    made = sample([text or "." for text in texts])
    found = {
        "words": float(np.mean([len(text.split()) for text in texts])),
        "cut": float(np.mean([not text.rstrip().endswith(ENDS) for text in texts])),
        **distances(real, made),
    }
    found |= {each.metric.name: float(each.value) for each in self_bleu_values(made.texts, "made", seed=0, resamples=2)}
    for value in measure_language_model(None, real, {"made": made}):
        if value.metric.name == "language_model_perplexity" and value.of == "made":
            found["perplexity"] = float(value.value)
    return {key: round(value, 4) for key, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=sorted(TYPES))
    parser.add_argument("way", choices=["ours", "pe", "real", "votes"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--blanks", type=float, default=0.5)
    parser.add_argument("--kept", type=Path, default=CACHE / "beside-texts")
    parser.add_argument("--prompts", type=Path, default=Path("DPSDA/example/text"))
    given = parser.parse_args()
    name, seed = given.table, given.seed
    known = KeptEmbedder(CACHE / f"beside-{name}.npz")
    catalog.load_embedder = lambda *_, **__: known
    everything = pq.read_table(DATA / name / "train.parquet", columns=["text"])
    order = np.random.default_rng(0).permutation(everything.num_rows)
    texts = everything.take(order[:RECORDS])["text"].to_pylist()
    real = sample(texts)
    known.save()
    given.kept.mkdir(parents=True, exist_ok=True)
    first = given.kept / f"{name}-{seed}.json"
    if given.way == "votes":
        for nearest in (1, 3, 5, 10):
            row = {"table": name, "nearest": nearest, "seed": seed, "noise": 4}
            row |= voted(real, json.loads(first.read_text()), nearest=nearest)
            add_row("beside/votes", row, ("table", "nearest", "seed"))
        known.save()
        return
    if given.way == "real":
        began, made = time.process_time(), everything.take(order[RECORDS : RECORDS + TEXTS])["text"].to_pylist()
    elif given.way == "pe":
        began, made = theirs(name, seed, texts, first, prompts=given.prompts)
    else:
        began, made = ours(name, seed, texts, first, blanks=given.blanks)
    row = {"table": name, "way": given.way, "blanks": given.blanks, "seed": seed, "texts": len(made)}
    row |= {"processor_seconds": round(time.process_time() - began, 1)}
    row |= {"gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)} | scores(real, made)
    print(json.dumps(row), flush=True)
    add_row("beside/texts", row, ("table", "way", "blanks", "seed"))


if __name__ == "__main__":
    main()
