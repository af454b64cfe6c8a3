"""Each costly step beside the least that could do it, in one process and by turns: what the guarantee costs.

Processor seconds. A ratio of 1 is as fast as the floor, of 2 half as fast; floors promise nothing.
"""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import corpora
from benchmarks.measuring import by_turns, in_own_process, peak_mb, rounded, say
from benchmarks.results import Row

SEED = corpora.SEED
Turns = dict[str, float | None]


def _reading(texts: int, repetitions: int) -> Turns:
    import pyarrow.parquet as pq

    import understudy as us

    with tempfile.TemporaryDirectory() as folder:
        file = corpora.write_table(Path(folder) / "corpus.parquet", texts)
        corpus = us.read_corpus(file, text="text", label="label", labels=corpora.label_names(corpora.LABELS))

        def decode() -> None:
            with pq.ParquetFile(file) as parquet:
                for batch in parquet.iter_batches(4096, columns=["text", "label"]):
                    batch.to_pydict()

        return by_turns(lambda: sum(len(batch.texts) for batch in corpus.batches()), decode, repetitions=repetitions)


def _matching(texts: int, repetitions: int) -> Turns:
    from understudy.text.vocabulary.terms import load_vocabulary
    from understudy.text.vocabulary.words import TermMatcher

    made = [text for some, _ in corpora.texts(texts) for text in some]
    matcher = TermMatcher(load_vocabulary().terms)

    def ours() -> None:
        for text in made:
            matcher.first_distinct(text, 10)

    def floor() -> None:
        for text in made:
            text.split()

    return by_turns(ours, floor, repetitions=repetitions)


def _hashing(texts: int, repetitions: int) -> Turns:
    import hashlib

    from understudy.corpus.corpus import Batch
    from understudy.corpus.verified import Contents

    made = [text for some, _ in corpora.texts(texts) for text in some]
    batch = Batch(made, np.zeros(len(made), dtype=np.int32))

    def floor() -> None:
        for text in made:
            hashlib.blake2b(text.encode(), digest_size=32).digest()

    return by_turns(lambda: Contents(b"key").add(batch), floor, repetitions=repetitions)


def _noise(numbers: int, repetitions: int) -> Turns:
    from understudy.privacy.noise import SystemNoise

    source, plain = SystemNoise(), np.random.default_rng(SEED)
    scale = 1e6
    return by_turns(
        lambda: source.draw("gaussian", scale=scale, size=numbers),
        lambda: np.rint(plain.standard_normal(numbers) * scale).astype(np.int64),
        repetitions=repetitions,
    )


def _embedding(texts: int, repetitions: int) -> Turns:
    """Beside the bare forward pass of the same network over the same texts, sorted and batched by its own library."""
    import torch

    from understudy.models.catalog import load_embedder

    torch.set_num_threads(1)
    embedder: Any = load_embedder("builtin")
    made = next(corpora.texts(texts))[0]
    tokens = embedder._model.tokenizer(made, truncation=True, max_length=embedder.longest)
    order = np.argsort([len(ids) for ids in tokens["input_ids"]])
    features = []
    for start in range(0, texts, 32):
        rows = [{key: tokens[key][row] for key in tokens} for row in order[start : start + 32]]
        features.append(dict(embedder._model.tokenizer.pad(rows, return_tensors="pt")))

    def floor() -> None:
        with torch.inference_mode():
            for each in features:
                embedder._model.forward(dict(each))

    return by_turns(lambda: embedder.embed(made), floor, repetitions=repetitions)


def _voting(records: int, repetitions: int) -> Turns:
    from benchmarks.voting import against_product

    return against_product(records, records // 4, repetitions)


def _faiss(records: int, repetitions: int) -> Turns | None:
    from benchmarks.voting import against_faiss

    return against_faiss(records, records // 4, repetitions)


def _decoding(rows: int, repetitions: int, *, candidates: int = 20) -> Turns:
    from benchmarks.decoding import measure

    found = measure(rows, candidates, clipping="difference", flight=1, steps=8, repetitions=repetitions)
    return {name: found[name] for name in ("seconds", "floor_seconds", "ratio")}


def _teachers(teachers: int, repetitions: int) -> Turns:
    import torch

    from benchmarks.teachers import stacked

    torch.set_num_threads(1)
    return stacked(teachers, repetitions)


def _gradients(_rows: int, repetitions: int) -> Turns:
    from benchmarks.gradients import measure

    found = measure("ours", model="builtin", device="cpu", dtype=None, repetitions=repetitions)
    return {name: found[name] for name in ("seconds", "floor_seconds", "ratio")}


@dataclass(frozen=True)
class Pair:
    """A step and its floor.

    Attributes:
        what, floor: in words.
        unit: of which there are ``size``.
        turns: measures both; None where what it needs is not installed.
        limit: what keeps the step above its floor, or what it buys with it.
        repetitions: turns that count, where all are asked for.
    """

    what: str
    floor: str
    unit: str
    size: int
    turns: Callable[[int, int], Turns | None]
    limit: str
    repetitions: int = 5


PAIRS = {
    "reading": Pair(
        "reading a Parquet table, each row checked by itself",
        "decoding the same columns into Python objects",
        "record",
        50_000,
        _reading,
        "Every cell is looked at in Python, since a row must be kept or refused by itself alone; Arrow decodes few "
        "rows at a time, so that one long value cannot fill the memory.",
    ),
    "hashing": Pair(
        "hashing each row in order (does the table stay as it was?)",
        "one BLAKE2b hash per text",
        "record",
        50_000,
        _hashing,
        "Text, label, owner and secrets are framed and hashed, added up as one large integer for the hash that ignores "
        "the order, and chained for the one that does not: in Python, per row.",
    ),
    "matching": Pair(
        "finding the first ten distinct terms of 82,000",
        "`str.split`",
        "text",
        20_000,
        _matching,
        "One dictionary look-up per word in Python, after lower-casing and cutting at every character except "
        "letters and digits.",
    ),
    "noise": Pair(
        "exact discrete Gaussian noise from the system's entropy",
        "NumPy's normal numbers, rounded",
        "number",
        100_000,
        _noise,
        "Exact rational arithmetic on large integers, one number at a time, and rejection; it is paid per released "
        "number and not per record.",
    ),
    "voting": Pair(
        "votes for the nearest of 5,000 candidates, exact on any machine",
        "a plain product and argmax in float32",
        "record",
        20_000,
        _voting,
        "The matrix product itself: rounding to integers, offsets and the histogram hide behind it.",
    ),
    "voting-faiss": Pair(
        "votes for the nearest of 5,000 candidates, exact on any machine",
        "faiss, flat L2 index (as the `pe` library votes)",
        "record",
        20_000,
        _faiss,
        "The same matrix product; what else faiss does was not looked into.",
    ),
    "embedding": Pair(
        "embedding texts that do not change each other's vectors",
        "the network's forward pass, texts sorted and padded to the longest of 32",
        "text",
        256,
        _embedding,
        "Batches of a few fixed shapes, filled up with copies, so that kernels never change with a text's neighbours; "
        "and the tokenizer.",
        2,
    ),
    "prediction": Pair(
        "a private token of 16 texts, candidates and noise included (top 20)",
        "plain greedy decoding of 16 sequences",
        "token of a row",
        16 * 8,
        lambda size, repetitions: _decoding(size // 8, repetitions),
        "The model itself. The public prompt is one row more; blocks of one shape carry a few rows that nobody needs.",
        2,
    ),
    "prediction-all": Pair(
        "the same over the whole vocabulary",
        "plain greedy decoding of 16 sequences",
        "token of a row",
        16 * 8,
        lambda size, repetitions: _decoding(size // 8, repetitions, candidates=0),
        "The model's head over 49,152 tokens for every row, and their clipped sum.",
        2,
    ),
    "teachers": Pair(
        "16 teachers trained at once on one trunk (seq-pate)",
        "one by one with the whole model at every step",
        "teacher",
        16,
        _teachers,
        "A text of 64 tokens is already a product that keeps a core busy, so stacking saves little; that the trunk "
        "runs once saves nothing here, as each text is read once.",
        1,
    ),
    "gradients": Pair(
        "clipped per-example gradients, summed as integers (dp-finetune; adapter B, 8 texts of 64 tokens)",
        "a plain step: the mean loss's gradient",
        "text",
        8,
        _gradients,
        "The backward pass. A leaf per row makes gradients of rank 8, small compared with the activations.",
        2,
    ),
}


def measure(name: str, share: float, repetitions: int | None) -> Row | None:
    """One pair; to be called in a process of its own."""
    pair = PAIRS[name]
    size = max(16, round(pair.size * share))
    found = pair.turns(size, repetitions or pair.repetitions)
    if found is None:
        return None
    return {
        "pair": name,
        "size": size,
        "unit": pair.unit,
        **found,
        "seconds_per_unit": rounded((found["seconds"] or 0.0) / size),
        "peak_mb": rounded(peak_mb()),
    }


def run(options: Namespace) -> Iterator[Row]:
    for name in options.pairs:
        found = in_own_process(measure, name, options.share, options.repetitions)
        if found is None:
            say(f"{name}: what it needs is not installed, left out")
            continue
        say(f"{name}: {found['ratio']}")
        yield found


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--share", type=float, default=1.0, help="of each pair's size; below 1 for a quick run")
    parser.add_argument("--repetitions", type=int, help="turns that count; default: each pair's own")
