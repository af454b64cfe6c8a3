"""Sentence embeddings from local weights, each text's independent of the texts beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ModelError
from understudy.models.cache import sha256_files
from understudy.models.extra import best_device, require_local
from understudy.models.threads import worker_pool

_BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
_TEXTS_AT_ONCE = 8192  # tokenised together, so that memory does not grow with the number of texts


@dataclass(frozen=True)
class _Batch:
    """Which texts (their row numbers), padded to how many tokens, and the tokens, filled up with copies."""

    rows: NDArray[np.intp]
    width: int
    tokens: list[dict[str, Any]]


class SentenceEmbedder:
    """A ``sentence-transformers`` model in a local folder, as an ``Embedder``.

    **Batch invariance.** A text's vector must not depend on its neighbours, or a bound on one record's influence
    fails. So the model only ever sees a few fixed shapes: a text is padded to the next of the lengths
    4, 6, 8, 12, 16, 24, ... tokens, and a batch is filled up with copies to the number of rows that belongs to that
    length. On one machine and device, alone or among others, in any order, a text's vector is the same bit for bit;
    against other machines, and against ``SentenceTransformer.encode``, expect differences up to 1e-6.

    Texts beyond the model's ``max_seq_length`` tokens are cut there. No prompt is put before a text.

    Args:
        folder: holds ``modules.json`` and what it names; weights in safetensors.
        name: the model's name in ``model_id``.
        device: ``"cpu"`` or ``"cuda"``; default CUDA where there is one.

    Raises:
        ModelError: the extra ``local`` is missing, or the folder holds no such model.
    """

    def __init__(self, folder: Path, *, name: str, device: str | None = None) -> None:
        self._device = device or best_device()
        self._model, self._fingerprint = load_transformer(folder, name=name, device=self._device)
        self._dimension = self._forward(next(self._batches(["a"]))).shape[1]
        self._model_id = f"{name}@{self._fingerprint[:12]}"

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def fingerprint(self) -> str:
        """SHA-256 over weights, tokenizer and the configuration that shapes the vectors."""
        return self._fingerprint

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return ``Float32[len(texts), d]`` of unit length (L2)."""
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        with worker_pool(self._device) as pool:
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                batches = list(self._batches(texts[start : start + _TEXTS_AT_ONCE]))
                for batch, found in zip(batches, pool.map(self._forward, batches), strict=True):
                    vectors[start + batch.rows] = found
        return vectors

    def _batches(self, texts: Sequence[str]) -> Iterator[_Batch]:
        """The texts in batches of fixed shapes, shortest first."""
        longest = self._model.max_seq_length or 512
        lower = getattr(self._model[0], "do_lower_case", False)
        cleaned = [text.strip().lower() if lower else text.strip() for text in texts]
        encoded = self._model.tokenizer(cleaned, truncation=True, max_length=longest)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        shorter = -1
        for width in _widths(longest):
            rows_of_width = np.flatnonzero((lengths > shorter) & (lengths <= width))
            size = max(1, _BATCH_TOKENS[self._device] // width)
            for start in range(0, len(rows_of_width), size):
                rows = rows_of_width[start : start + size]
                filled = [*rows, *[rows[0]] * (size - len(rows))]
                yield _Batch(rows, width, [{key: encoded[key][row] for key in encoded} for row in filled])
            shorter = width

    def _forward(self, batch: _Batch) -> NDArray[np.float32]:
        """The unit vectors of the batch's rows."""
        import torch

        tokenizer = self._model.tokenizer
        padded = tokenizer.pad(batch.tokens, padding="max_length", max_length=batch.width, return_tensors="pt")
        features = {key: value.to(self._device) for key, value in padded.items()}
        with torch.inference_mode():
            vectors = self._model.forward(features)["sentence_embedding"].double().cpu().numpy()[: len(batch.rows)]
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (vectors / np.maximum(norms, 1e-30)).astype(np.float32)
        return unit


def load_transformer(folder: Path, *, name: str, device: str) -> tuple[Any, str]:
    """The ``SentenceTransformer`` in ``folder``, ready to infer, and the SHA-256 of what defines its vectors.

    Raises:
        ModelError: as :class:`SentenceEmbedder` says.
    """
    require_local()
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerBase

    try:
        fingerprint = sha256_files(folder, _defining_files(folder))
        model: Any = SentenceTransformer(
            str(folder), device=device, local_files_only=True, model_kwargs={"use_safetensors": True}
        ).eval()
    except Exception as error:  # the libraries raise whatever they like on a foreign folder
        raise ModelError(
            f"The folder of {name} holds no sentence embedder that can be loaded ({type(error).__name__}).",
            "Give a sentence-transformers model with weights in safetensors, or use the embedder 'embedded'.",
        ) from error
    if not isinstance(model.tokenizer, PreTrainedTokenizerBase):
        raise ModelError(f"{name} is not a transformer model.", "Use one that is, or the embedder 'embedded'.")
    return model, fingerprint


def _widths(longest: int) -> list[int]:
    """4, 6, 8, 12, 16, 24, ... and last the model's own longest."""
    steps = (width for power in range(2, longest.bit_length()) for width in (2**power, 3 * 2 ** (power - 1)))
    return [*(width for width in steps if width < longest), longest]


def _defining_files(folder: Path) -> list[Path]:
    """The files that decide what vectors come out: weights, tokenizer, configuration."""
    names = ("*.safetensors", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json")
    shapes = ("config.json", "sentence_bert_config.json", "modules.json", "*/config.json", "*/*.safetensors")
    modules = {entry["path"] for entry in json.loads((folder / "modules.json").read_text(encoding="utf-8"))}
    found = (path for pattern in names + shapes for path in folder.glob(pattern))
    return [path for path in found if path.parent == folder or path.parent.name in modules]
