"""Embed sentences with local weights, each text independently of the other texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.base.files import files_sha256
from understudy.base.lazy import torch
from understudy.models.builtin import EMBEDDER, builtin_path, is_builtin
from understudy.models.machine import best_device, require_local, worker_pool
from understudy.models.row_invariance import positions, require_separate_rows, separate_positions

_BATCH_TOKENS = {"cpu": 1024, "cuda": 16384}
_REGISTER = 8  # rows and columns of a batch, where there are as many: nothing is left over after whole vectors
_MODULES = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout")  # each reads a row by itself
_DEFINING = (
    *("*.safetensors", "tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("config.json", "sentence_bert_config.json", "modules.json", "*/config.json", "*/*.safetensors"),
)
"""The files that determine the vectors: weights, tokenizer, configuration."""
_TEXTS_AT_ONCE = 8192  # tokenised together, so that memory does not grow with the number of texts


@dataclass(frozen=True)
class _Batch:
    rows: NDArray[np.intp]  # numbers of its texts
    width: int  # to which they are padded
    tokens: list[dict[str, Any]]  # filled up with copies


class SentenceEmbedder:
    """A ``sentence-transformers`` model in a local folder, as an ``Embedder``.

    **Batch invariance.** A text's vector must not depend on its neighbours, or a bound on one record's influence fails.
    So the model only ever sees a few fixed shapes: a text is padded to the next of the lengths 4, 6, 8, 12, 16, 24, ...
    that is longer than it, since kernels differ if nothing is padded; and a batch is filled up with copies to
    the number of rows for that length. On one machine and device, alone or among others, in any order, a
    text's vector is the same bit for bit, which :mod:`understudy.models.embedder_checks` tests; across machines,
    and against ``SentenceTransformer.encode``, expect differences up to 1e-6. Models that mix the rows of a batch by
    design are refused.

    Texts beyond the model's ``max_seq_length`` tokens are cut there; or earlier, if its positions end (one of which is
    for padding) or depend on the longest text of a batch. No prompt is put before a text.

    Args:
        folder: contains ``modules.json`` and the files that it names; weights in safetensors.
        name: the model's name in ``model_id``.
        device: ``"cpu"`` or ``"cuda"``; default CUDA if available.

    Raises ModelError if the extra ``local`` is missing, or the folder has no such model, or one that mixes texts.
    """

    def __init__(self, folder: Path, *, name: str, device: str | None = None) -> None:
        self._folder, self._name = folder, name
        self.device = device or best_device()
        self._model, self.fingerprint = load_transformer(folder, name=name, device=self.device)
        require_separate_rows(self._model, name=name)
        columns = separate_positions(self._model, positions(self._model))
        self.longest = min(self._model.max_seq_length or 512, columns - 1)
        """Tokens to which a text is cut."""
        self.batch_tokens = _BATCH_TOKENS[self.device]
        """Approximate number of tokens per batch."""
        self.local = True
        self._columns = _columns(self.longest, most=columns)
        self._dimension = self._forward(next(self._batches(["a"]))).shape[1]
        self.model_id = f"{name}@{self.fingerprint[:12]}"

    def __reduce__(self) -> tuple[Any, tuple[Path, str, str, str]]:
        return _again, (self._folder, self._name, self.device, self.fingerprint)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return a vector of length 1 (L2) for each text: ``Float32[len(texts), d]``."""
        vectors = np.zeros((len(texts), self._dimension), dtype=np.float32)
        with worker_pool(self.device) as pool:
            for start in range(0, len(texts), _TEXTS_AT_ONCE):
                batches = list(self._batches(texts[start : start + _TEXTS_AT_ONCE]))
                for batch, found in zip(batches, pool.map(self._forward, batches), strict=True):
                    vectors[start + batch.rows] = found
        return vectors

    def _batches(self, texts: Sequence[str]) -> Iterator[_Batch]:
        """Yield the texts in batches of fixed shapes, shortest first."""
        lower = getattr(self._model[0], "do_lower_case", False)
        cleaned = [text.strip().lower() if lower else text.strip() for text in texts]
        encoded = self._model.tokenizer(cleaned, truncation=True, max_length=self.longest)
        lengths = np.array([len(ids) for ids in encoded["input_ids"]])
        narrower = 0
        for width in self._columns:
            rows_of_width = np.flatnonzero((lengths >= narrower) & (lengths < width))
            size = max(1, self.batch_tokens // width)
            size -= size % _REGISTER if size > _REGISTER else 0
            for start in range(0, len(rows_of_width), size):
                rows = rows_of_width[start : start + size]
                filled = [*rows, *[rows[0]] * (size - len(rows))]
                yield _Batch(rows, width, [{key: encoded[key][row] for key in encoded} for row in filled])
            narrower = width

    def _forward(self, batch: _Batch) -> NDArray[np.float32]:
        """Return the unit vectors of the batch's rows."""
        tokenizer = self._model.tokenizer
        padded = tokenizer.pad(batch.tokens, padding="max_length", max_length=batch.width, return_tensors="pt")
        features = {key: value.to(self.device) for key, value in padded.items()}
        with torch.inference_mode():
            vectors = self._model.forward(features)["sentence_embedding"].double().cpu().numpy()
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        unit: NDArray[np.float32] = (vectors / np.maximum(norms, 1e-30)).astype(np.float32)
        return unit[: len(batch.rows)]


@lru_cache(maxsize=1)
def _again(folder: Path, name: str, device: str, fingerprint: str) -> SentenceEmbedder:
    """Load, in a worker, the embedder that another process uses; a built-in one comes from this machine's cache."""
    require_local(device)
    found = SentenceEmbedder(builtin_path(EMBEDDER) if is_builtin(name) else folder, name=name, device=device)
    if found.fingerprint != fingerprint:
        raise ModelError(
            f"A worker's machine has a different model under the name {name}.", "Copy the same files to every machine."
        )
    return found


def load_transformer(folder: Path, *, name: str, device: str) -> tuple[Any, str]:
    """Return the ``SentenceTransformer`` in ``folder``, ready to infer, and the SHA-256 of the files that define it."""
    require_local()
    from sentence_transformers import SentenceTransformer
    from transformers import PreTrainedTokenizerBase

    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        found = (path for pattern in _DEFINING for path in folder.glob(pattern))
        inside = (folder, *(folder / str(each["path"]) for each in modules))
        fingerprint = files_sha256(folder, [path for path in found if path.parent in inside])
        for entry in modules:  # before any is imported
            package, _, kind = str(entry["type"]).rpartition(".")
            if package.partition(".")[0] != "sentence_transformers" or kind not in _MODULES:
                raise ModelError(
                    f"{name} has a module {kind!r}, which is custom code or may mix the texts of a batch.",
                    f"Use a model that is made of {', '.join(_MODULES)} alone, as nearly all are.",
                )
        model: Any = SentenceTransformer(
            str(folder), device=device, local_files_only=True, model_kwargs={"use_safetensors": True}
        ).eval()
    except ModelError:
        raise
    except Exception as error:  # the libraries raise whatever they like on a foreign folder
        raise ModelError(
            f"The folder of {name} contains no sentence embedder that can be loaded ({type(error).__name__}).",
            "Give a sentence-transformers model with weights in safetensors, or use the embedder 'builtin'.",
        ) from error
    if not isinstance(model.tokenizer, PreTrainedTokenizerBase):
        raise ModelError(f"{name} is not a transformer model.", "Use one that is, or the embedder 'builtin'.")
    return model, fingerprint


def _columns(longest: int, *, most: int) -> list[int]:
    """Return 4, 6, 8, 12, 16, 24, ... up to the model's longest text and a column of padding."""
    last = min(most, -(-(longest + 1) // _REGISTER) * _REGISTER)
    steps = (width for power in range(2, last.bit_length()) for width in (2**power, 3 * 2 ** (power - 1)))
    return [*(width for width in steps if width < last), last]
