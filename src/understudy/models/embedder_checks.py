"""Check with public texts whether an embedder may read private ones, before anything is charged.

The influence of one record is bounded only if it cannot change another record's vector. And a model that fails on an
odd text would make a run fail after its charge. Every embedder is tested through ``embed``, which also gets the private
texts, on this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.base.files import PRIVATE_MODE, private_folder, write_file
from understudy.models.builtin import models_dir
from understudy.models.causal import CausalModel
from understudy.models.embedder import SentenceEmbedder
from understudy.models.machine import worker_count
from understudy.models.types import Embedder
from understudy.models.vectors import conditions, uncached
from understudy.privacy.measurement import Engine

T = TypeVar("T")
ODD_TEXTS = ("", " ", "\n", "\x00", "\u0301", "\U0010ffff", "\U0001f642", "a" * 50_000, "a text " * 10_000, "[{<|")
_ON_WORKERS = ("understudy", "numpy", "pyarrow")  # packages of the same versions
_PLAIN = "a public text"
_CURE = "Use another model: this one would fail on such a private text after the charge."
_LONGEST = 512  # words, where an embedder does not say at how many tokens it cuts
_BATCH_TOKENS = 2048  # likewise
_WORDS = ("the", "of", "and", "to", "in", "a", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not")
_ODD = (
    "",
    " \n\t ",
    "?!" * 40,
    "a" * 2000,
    "3.14159 -- 2,718 (no. 7)\n" * 12,
    "\N{LATIN SMALL LETTER E WITH ACUTE}\N{COMBINING DIAERESIS} \N{OHM SIGN} \N{GRINNING FACE}" * 9,
    "\N{CJK UNIFIED IDEOGRAPH-6587}\N{CJK UNIFIED IDEOGRAPH-672C}" * 60,
)


def require_trusted(embedder: Embedder, *, trust_endpoint: bool) -> None:
    """Check that an embedder may read private texts: it is local, or ``trust_endpoint`` is set; else a ModelError."""
    local = getattr(embedder, "local", None)
    if not isinstance(local, bool):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not say whether texts stay on this machine.",
            "Use another embedder, or a version of it that has the attribute `local`.",
        )
    if not local and not trust_endpoint:
        raise ModelError(
            f"The embedder {embedder.model_id!r} sends texts away from this machine, and would read private ones.",
            "Use a local embedder; or, if the operator of its endpoint may read them, allow it with --trust-endpoint.",
        )


def trusted_with_texts(embedder: Embedder | None) -> tuple[str, ...]:
    """Return the statement's sentences about whom the user trusts with private texts: one, or none."""
    if embedder is None or embedder.local:
        return ()
    return (
        f"The endpoint of the embedder {embedder.model_id} read the private texts (--trust-endpoint): its "
        "operator, and anyone who listens there, is not covered by any guarantee.",
    )


def require_embeds_all(embedder: Embedder) -> int:
    """Check that an embedder embeds any text. Return the dimension of its vectors.

    Raises ModelError if it fails on an odd text or on an empty list, or does not give one vector per text, all of one
    dimension, that of a plain text with length 1.
    """
    embedder, texts = uncached(embedder), [_PLAIN, *ODD_TEXTS]
    vectors, none = _tried(lambda: (np.asarray(embedder.embed(texts)), np.asarray(embedder.embed([]))), embedder)
    if vectors.ndim != 2 or len(vectors) != len(texts) or none.shape != (0, vectors.shape[1]):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not answer with one vector per text, all of one dimension.",
            "Use another embedder.",
        )
    if not abs(float(np.linalg.norm(vectors[0])) - 1) < 0.01:  # NaN is not near to 1 either
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not return vectors of length 1.",
            "Use an embedder that normalises its vectors.",
        )
    return int(vectors.shape[1])


def require_encodes_all(model: CausalModel) -> None:
    """Check that a model's tokenizer accepts any text; else a ModelError."""
    _tried(lambda: [model.encode(text) for text in ODD_TEXTS], model)


def _tried(use: Callable[[], T], model: Embedder | CausalModel) -> T:
    try:
        return use()
    except Exception as error:  # libraries raise whatever they like
        raise ModelError(
            f"The model {model.model_id!r} fails on an odd public text ({type(error).__name__}).", _CURE
        ) from None


def require_text_invariance(embedder: Embedder) -> None:
    """Test with random public texts of all lengths that none changes another's vector by a bit; else a ModelError.

    It embeds some texts alone, short ones first, to detect a state that long ones leave behind; then all together,
    about a batch of each length; then twice in a different order with half of them replaced, once in another
    thread; then the first ones alone again. About 60 batches: 23 seconds of processor time for the built-in
    embedder without AVX-512, 5 % of the time for ten thousand notes.
    """
    embedder, rng = uncached(embedder), np.random.default_rng(0)
    longest, batch = getattr(embedder, "longest", _LONGEST), getattr(embedder, "batch_tokens", _BATCH_TOKENS)
    lengths = _lengths(longest)

    def some(length: int) -> str:
        return " ".join(rng.choice(_WORDS, size=length))

    lonely = [some(length) for length in lengths[::3]]
    crowd = [some(length) for length in lengths for _ in range(max(2, 2 * batch // (3 * (length + 2))))]
    texts = [*lonely, *crowd, *_ODD]

    def alone() -> NDArray[np.float32]:
        return np.concatenate([_vectors(embedder, [text]) for text in lonely])

    first = alone()
    together = _vectors(embedder, texts)
    _require_same(embedder, first, together[: len(lonely)])
    with ThreadPoolExecutor(1) as other_thread:
        for number, kept in enumerate(np.array_split(rng.permutation(len(texts)), 2)):
            others = [some(int(length)) for length in rng.choice(lengths, size=len(lengths))]
            order = rng.permutation(len(kept) + len(others))
            beside = [*(texts[place] for place in kept), *others]
            embed = partial(_vectors, embedder, [beside[place] for place in order])
            vectors = other_thread.submit(embed).result() if number else embed()
            _require_same(embedder, vectors[np.argsort(order)[: len(kept)]], together[kept])
    _require_same(embedder, first, alone())


def require_text_invariance_here(embedder: Embedder, *, say: Callable[[str], object]) -> None:
    """Run :func:`require_text_invariance` once per machine for the local embedders of understudy. A pass is stored in
    the user's cache folder, under everything that determines a vector's bits
    (:func:`understudy.models.vectors.conditions`), the number of threads, and the libraries' variables. A failure is
    not stored; other embedders and devices are tested each time."""
    path = _passed(embedder)
    told = json.dumps({"model": embedder.model_id, "text invariance": "passed", "under": path.name if path else ""})
    with suppress(OSError):
        if path is not None and path.read_text("ascii") == told:
            return
    once = ", once for each model" if path else ""
    say(f"Checking on this machine that texts do not change each other's embeddings (minutes if it is busy{once}).")
    require_text_invariance(embedder)
    if path is not None:
        with suppress(OSError):
            write_file(private_folder(path.parent) / path.name, told, mode=PRIVATE_MODE)


_STEERING = ("ATEN_", "CUBLAS_", "DNNL_", "KMP_", "MKL_", "NVIDIA_", "OMP_", "ONEDNN_", "OPENBLAS_", "TORCH")
"""Prefixes of the environment variables that libraries read."""
_CODE = ("embedder.py", "machine.py", Path(__file__).name)
"""The modules that embed and that test embedders."""


def _passed(embedder: Embedder) -> Path | None:
    """Return the file that records a pass under these conditions; None for embedders that are always tested."""
    own = uncached(embedder)
    if type(own) is not SentenceEmbedder or own.device != "cpu" or (found := conditions(own)) is None:
        return None
    around = sorted(each for each in os.environ.items() if each[0].startswith(_STEERING))
    code = [hashlib.sha256(Path(__file__).with_name(name).read_bytes()).hexdigest() for name in _CODE]
    told = [found[0].hex(), code, own.device, worker_count(own.device), own.longest, own.batch_tokens, around]
    return models_dir().parent / "trials" / hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _lengths(longest: int) -> list[int]:
    """Return lengths in words: 1, 2, 3, 4, 6, 8, 12, ..., to beyond the length at which texts are cut."""
    steps = {2**power * part // 2 for power in range(longest.bit_length()) for part in (2, 3)}
    return sorted({length for length in steps if length <= longest} | {longest + longest // 2})


def _vectors(embedder: Embedder, texts: Sequence[str]) -> NDArray[np.float32]:
    vectors = np.ascontiguousarray(embedder.embed(texts), dtype=np.float32)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not answer with one vector per text.", "Use another."
        )
    return vectors


def _require_same(embedder: Embedder, first: NDArray[np.float32], second: NDArray[np.float32]) -> None:
    """Check that the bits are the same, also those of values that are not numbers."""
    if first.shape != second.shape or first.tobytes() != second.tobytes():
        raise ModelError(
            f"The vectors of the embedder {embedder.model_id!r} change with the other texts, so the influence of "
            "one record would have no bound.",
            "Use another embedder, such as 'builtin', or another machine.",
        )


def require_same_vectors(
    engine: Engine | None, embedder: Embedder, *, say: Callable[[str], object] | None = None
) -> None:
    """Check that all workers, even those that join later, give some public texts the same vectors; else EngineError.

    With ``say``, which reports what takes minutes, check first on this machine and on every kind of worker that texts
    do not change each other's vectors; else ModelError. Without, no bound on one record's influence may depend on the
    vectors.
    """
    if say is not None:
        require_text_invariance_here(embedder, say=say)
    if engine is not None:
        if say is not None:
            engine.ask(partial(require_text_invariance, embedder))
        engine.ask(partial(kind_of_worker, embedder), always=True)


def kind_of_worker(embedder: Embedder | None = None) -> tuple[object, ...]:
    """Return everything that can change a worker's results: versions and, if it embeds, processor and settings of the
    model."""
    vectors = None if embedder is None else conditions(uncached(embedder))
    return platform.python_version(), *map(_version_of, _ON_WORKERS), vectors


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
