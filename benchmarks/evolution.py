"""Private evolution side by side: Aug-PE and SecPE on yelp_augpe and pubmed, with the built-in language model.

Small populations (100 texts, L = 3, 3 rounds), each method without noise and with it. After every round: the kernel
distance between the texts it chose and the private embeddings, with a 95 % bootstrap interval; and the time that the
language model and the voting took.

    python -m benchmarks.evolution --set yelp_augpe
    python -m benchmarks.evolution --set pubmed --method sec-pe
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import understudy as us
import understudy.models.catalog as catalog
from benchmarks.sets import CACHE, DATA, embed, embedder
from understudy.corpus.bounding import BoundedBatch
from understudy.ledger import Ledger
from understudy.ledger.store import RunStore
from understudy.methods.sec_pe.generate import CentreVotes
from understudy.methods.shared.evolution.embeddings import PrivateEmbeddings, integer_vectors
from understudy.methods.shared.evolution.loop import Round, evolve
from understudy.methods.shared.evolution.variation import TextAPI, keywords_of_labels
from understudy.methods.shared.evolution.voting import nearest
from understudy.models.collect import CachedChat
from understudy.models.types import ChatModel
from understudy.privacy.guarantee import SecretBudget
from understudy.text.prompts.template import WritingParameters, load_template
from understudy.text.writing import Writer

TYPES = {"yelp_augpe": "review", "pubmed": "medical abstract"}
DELTA = "1e-6"
SECRETS = {"secret_detectors": "email,phone,url,us_ssn,iban,credit_card", "max_records_per_secret": 5}
PRIOR, POSTERIOR = "1e-4", "1e-3"
KERNEL = "((1 + x.y) / 2)^3 on unit vectors, unbiased MMD^2"


def kernel(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    return ((1 + a.astype(np.float64) @ b.astype(np.float64).T) / 2) ** 3


def within(kernels: NDArray[np.float64]) -> float:
    """Mean over pairs of different texts."""
    count = len(kernels)
    return float((kernels.sum() - np.trace(kernels)) / (count * (count - 1)))


_OF_PRIVATE: dict[int, float] = {}


def with_interval(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> tuple[float, float, float]:
    """Unbiased squared MMD with the cubic kernel, and a 95 % interval over our texts.

    The interval: 2.5 and 97.5 % points of 400 half samples without replacement, which spread about as n texts do.
    """
    private = _OF_PRIVATE.setdefault(id(theirs), within(kernel(theirs, theirs)))
    own, between = kernel(ours, ours), kernel(ours, theirs).mean(axis=1)

    def distance(rows: NDArray[np.int64]) -> float:
        return within(own[np.ix_(rows, rows)]) + private - 2 * float(between[rows].mean())

    generator = np.random.default_rng(0)
    whole = distance(np.arange(len(ours)))
    halves = [distance(generator.permutation(len(ours))[: len(ours) // 2]) - whole for _ in range(400)]
    low, high = np.quantile(halves, [0.025, 0.975])
    return whole, whole + float(low), whole + float(high)


@dataclass
class Clock:
    """Seconds that the language model took."""

    seconds: float = 0.0
    calls: int = 0


class Remembering:
    """The embedder, which knows the texts of the sets already: four releases would embed them anew."""

    def __init__(self, texts: Sequence[str], vectors: NDArray[np.float32]) -> None:
        self._inner = embedder()
        self._known = {text.strip(): row for row, text in enumerate(texts)}
        self._vectors = vectors
        self.model_id, self.fingerprint, self.local = self._inner.model_id, self._inner.fingerprint, True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        rows = [self._known.get(text.strip(), -1) for text in texts]
        found = self._vectors[rows]
        new = [place for place, row in enumerate(rows) if row < 0]
        if new:
            found[new] = self._inner.embed([texts[place] for place in new])
        return found


def timed_chat(chat: ChatModel, clock: Clock) -> ChatModel:
    class Timed:
        model_id = chat.model_id

        async def complete(self, requests: Sequence[Any]) -> Any:
            start = time.perf_counter()
            async for each in chat.complete(requests):
                yield each
            clock.seconds += time.perf_counter() - start
            clock.calls += len(requests)

    return Timed()  # type: ignore[return-value]


def show(name: str, number: int, chosen: NDArray[np.float32], private: NDArray[np.float32], **more: Any) -> None:
    distance, low, high = with_interval(chosen, private)
    print(
        json.dumps(
            {
                "run": name,
                "round": number,
                "kernel distance": round(distance, 5),
                "interval": [round(low, 5), round(high, 5)],
                **more,
            }
        ),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="yelp_augpe", choices=sorted(TYPES))
    parser.add_argument("--method", default=None, choices=["aug-pe", "sec-pe"])
    parser.add_argument("--noise", default=None, choices=["with", "without"])
    parser.add_argument("--population", type=int, default=100)
    parser.add_argument("--variations", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clusters", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--distance", default="centred", choices=["centred", "cosine", "l2"])
    parser.add_argument("--blanks", type=float, default=0.0, help="the paper's 0.5 is too much for so small a model")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--candidates", type=int, default=2000, help="of the comparison of voting times")
    parser.add_argument("--voting", action="store_true", help="compare voting times only")
    parser.add_argument("--show", type=int, default=0)
    arguments = parser.parse_args()
    train = DATA / arguments.set / "train.parquet"
    test = DATA / arguments.set / "test.parquet"
    texts, public = (pq.read_table(file, columns=["text"]).column("text").to_pylist() for file in (train, test))
    private = embed(texts)
    if arguments.voting:
        voting(arguments, private)
        return
    remembering = Remembering([*texts, *public], np.concatenate([private, embed(public)]))
    catalog.load_embedder = lambda *_, **__: remembering  # type: ignore[assignment]
    clock = Clock()
    with RunStore.open(CACHE / f"answers-{arguments.set}", noise="system") as store:
        real = catalog.load_chat("builtin", seed=arguments.seed)
        chat = CachedChat(timed_chat(real, clock), store.answers)
        catalog.load_chat = lambda *_, **__: chat  # type: ignore[assignment]
        for method in (arguments.method,) if arguments.method else ("aug-pe", "sec-pe"):
            for noisy in (arguments.noise == "with",) if arguments.noise else (False, True):
                run = aug_pe if method == "aug-pe" else sec_pe
                print(json.dumps({"set": arguments.set, "method": method, "noise": noisy}), flush=True)
                run(arguments, private, noisy, clock, chat)
        voting(arguments, private)


def evolution_of(arguments: Any) -> dict[str, Any]:
    return {
        "population": arguments.population,
        "rounds": arguments.rounds,
        "variations": arguments.variations,
        "distance": arguments.distance,
        "blank_probability": arguments.blanks,
    }


def aug_pe(arguments: Any, private: NDArray[np.float32], noisy: bool, clock: Clock, chat: ChatModel) -> None:
    method = us.AugPE(**evolution_of(arguments))
    name = f"aug-pe epsilon {4 if noisy else 'inf'}"
    with tempfile.TemporaryDirectory() as folder:
        llm = []

        def say(line: str) -> None:
            if line.startswith("Round"):
                llm.append((clock.seconds, clock.calls))
            print(json.dumps({"said": line}), flush=True)

        clock.seconds, clock.calls = 0.0, 0
        release = us.release(
            us.read_corpus(DATA / arguments.set / "train.parquet", text="text"),
            method,
            us.Budget(4, DELTA),
            llm="builtin",
            output=f"{folder}/out",
            ledger=Ledger.create(f"{folder}/ledger.sqlite").location,
            dataset="benchmark",
            document_type=TYPES[arguments.set],
            max_tokens=arguments.max_tokens,
            llm_temperature=arguments.temperature,
            insecure_no_noise=not noisy,
            seed=arguments.seed,
            listener=us.Listener(say),
        )
        diary = [json.loads(line) for line in (Path(folder) / "out/private/diary.jsonl").read_text().splitlines()]
    texts = release.strings["texts"]
    for number in range(arguments.rounds):
        rows = np.flatnonzero((release.arrays["round"] == number) & (release.arrays["chosen"] > 0))
        chosen = [texts[row] for row in rows.tolist()]
        if number == 0:
            first = [texts[row] for row in np.flatnonzero(release.arrays["round"] == 0).tolist()]
            show(name, 0, embed(first), private, texts=len(first))
        seconds, calls = llm[number]
        before = llm[number - 1] if number else (0.0, 0)
        show(
            name,
            number + 1,
            embed(chosen),
            private,
            texts=len(chosen),
            fresh_calls=calls - before[1],
            llm_seconds=round(seconds - before[0], 1),
            voting_seconds=round(diary[number]["seconds"], 4),
        )
        for text in chosen[: arguments.show]:
            print("   ", text.replace("\n", " ")[:300])


def sec_pe(arguments: Any, private: NDArray[np.float32], noisy: bool, clock: Clock, chat: ChatModel) -> None:
    parameters = {
        **evolution_of(arguments),
        "clusters": arguments.clusters,
    }
    method = us.SecPE(
        public_corpus=str(DATA / arguments.set / "test.parquet"), public_corpus_is_public=True, **parameters
    )
    name = f"sec-pe r/p {10 if noisy else 'inf'}"
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        release = us.release(
            us.read_corpus(DATA / arguments.set / "train.parquet", text="text"),
            method,
            SecretBudget(PRIOR, POSTERIOR),
            ledger=Ledger.create(f"{folder}/ledger.sqlite").location,
            dataset="benchmark",
            insecure_no_noise=not noisy,
            seed=arguments.seed,
            **SECRETS,
        )
        print(
            json.dumps({"release_seconds": round(time.perf_counter() - start, 1), **release.noise_check.to_json()}),
            flush=True,
        )
    votes = CentreVotes(release.arrays["centres"], release.arrays["sizes"], distance=arguments.distance)
    template = load_template(TYPES[arguments.set])
    writer = Writer(
        chat,
        template,
        WritingParameters(max_tokens=arguments.max_tokens, llm_temperature=arguments.temperature),
        seed=arguments.seed,
    )
    api = TextAPI(writer, method, keywords_of_labels(method, template.evolution, ()))
    took: list[float] = []

    def vote(*given: Any) -> NDArray[np.float64]:
        start = time.perf_counter()
        found = votes(*given)
        took.append(time.perf_counter() - start)
        return found

    clock.seconds, clock.calls = 0.0, 0
    rounds: list[Round] = []
    before = (0.0, 0)
    for each in evolve(api, [arguments.population], embed=embedder().embed, vote=vote):
        if not rounds:
            show(name, 0, embed(list(each.population.texts)), private, texts=len(each.population))
        rounds.append(each)
        chosen = list(dict.fromkeys(each.chosen_texts))
        show(
            name,
            len(rounds),
            embed(chosen),
            private,
            texts=len(chosen),
            fresh_calls=clock.calls - before[1],
            llm_seconds=round(clock.seconds - before[0], 1),
            voting_seconds=round(took[-1], 4),
        )
        before = (clock.seconds, clock.calls)
        for text in chosen[: arguments.show]:
            print("   ", text.replace("\n", " ")[:300])


def _vote(blocks: Any, vectors: Any, labels: Any, distance: Any) -> float:
    """Seconds from the candidates' integer vectors to a histogram."""
    start = time.perf_counter()
    histogram = np.zeros(len(vectors))
    for found in nearest(blocks(), vectors, labels, distance=distance):
        np.add.at(histogram, found[:, 0], 1.0)
    return time.perf_counter() - start


def voting(arguments: Any, private: NDArray[np.float32]) -> None:
    """Time of one vote of M private records against that of K centres, for the same candidates."""
    candidates = private[np.random.default_rng(1).permutation(len(private))[: arguments.candidates]]
    labels = np.zeros(len(candidates), dtype=np.int32)
    centres = private[: arguments.clusters][None]
    votes = CentreVotes(centres, np.ones((1, arguments.clusters)))
    with tempfile.TemporaryDirectory() as folder:

        class Known:
            model_id = fingerprint = "known"

            def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
                return private[[int(text) if text.isdigit() else 0 for text in texts]]

        numbers = [str(number) for number in range(len(private))]
        zeros = np.zeros(len(private))

        class Records:
            def batches(self) -> Iterator[BoundedBatch]:
                ones = zeros.astype(np.int64) + 1
                yield BoundedBatch(numbers, zeros.astype(np.int32), ones, np.arange(len(numbers)))

        records = PrivateEmbeddings(Records(), Known(), Path(folder), "k")
        ours, theirs, shared = [], [], []
        for _ in range(20):
            start = time.perf_counter()
            vectors = integer_vectors(candidates)
            shared.append(time.perf_counter() - start)
            ours.append(_vote(lambda vectors=vectors: records.batches(), vectors, labels, arguments.distance))
            theirs.append(_vote(lambda: [votes.centres], vectors, labels, arguments.distance))
    print(
        json.dumps(
            {
                "voting": arguments.set,
                "records": len(private),
                "clusters": arguments.clusters,
                "candidates": len(candidates),
                "aug-pe_ms": round(1e3 * float(np.median(ours)), 2),
                "sec-pe_ms": round(1e3 * float(np.median(theirs)), 3),
                "rounding of the candidates, for both (ms)": round(1e3 * float(np.median(shared)), 2),
                "ratio": round(float(np.median(ours) / np.median(theirs)), 1),
            }
        )
    )


if __name__ == "__main__":
    main()
