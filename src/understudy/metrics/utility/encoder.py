"""A local encoder, fine-tuned as a classifier."""

from __future__ import annotations

import math
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.sample import Sample
from understudy.metrics.utility.linear import Predict
from understudy.metrics.utility.network import batches
from understudy.models.builtin import EMBEDDER, builtin_path
from understudy.models.catalog import model_folder
from understudy.models.embedder import load_transformer
from understudy.models.machine import best_device

_BATCH = 16
_EPOCHS = 3
_STEPS = 60  # at least, however few texts there are
_RATE, _HEAD_RATE = 5e-5, 1e-3
_WARM = 0.1  # share of the steps in which the rates rise


def fit_encoder(train: Sample, targets: NDArray[np.int64], *, seed: int, encoder: str) -> Predict:
    """Tune all weights of a sentence embedder, with a linear layer on its vectors, on the cross-entropy.

    Three epochs (at least 60 steps) of AdamW in batches of 16, with rates that rise and fall in straight lines, as
    Devlin et al. 2019 tune BERT. Dropout draws from torch's global generators, whose state is put back. A text's class
    may depend on the texts beside it by rounding, so this kind cannot be counted for a charge.

    Args:
        train: the texts.
        targets: ``Int64[len(train)]``, classes numbered 0, 1, ..., k - 1.
        seed: of the linear layer, the order and the dropout.
        encoder: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER``.

    Raises:
        ModelError: the model is not on this machine, or cannot be loaded.
    """
    import torch

    with torch.random.fork_rng(), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(seed)
        model, _ = load_transformer(_folder(encoder), name=encoder, device=best_device())
        width = _vectors(model, ["a"]).shape[1]
        head = torch.nn.Linear(width, int(targets.max()) + 1, device=model.device)
        _tune(model, head, list(train.texts), torch.from_numpy(targets).to(model.device))

    def predict(sample: Sample) -> NDArray[np.int64]:
        found = np.zeros(len(sample), dtype=np.int64)
        by_length = sorted(range(len(sample)), key=lambda row: len(sample.texts[row]))
        with torch.inference_mode():
            for start in range(0, len(sample), _BATCH):
                rows = by_length[start : start + _BATCH]
                found[rows] = head(_vectors(model, [sample.texts[row] for row in rows])).argmax(1).cpu().numpy()
        return found

    return predict


def _folder(encoder: str) -> Path:
    return builtin_path(EMBEDDER) if encoder == "builtin" else model_folder(encoder.removeprefix("hf:"))


def _tune(model: Any, head: Any, texts: list[str], targets: Any) -> None:
    """Train both in place, and leave the model ready to infer."""
    import torch

    model.train()
    optimizer = torch.optim.AdamW(
        [{"params": model.parameters(), "lr": _RATE}, {"params": head.parameters(), "lr": _HEAD_RATE}]
    )
    steps = max(_STEPS, _EPOCHS * math.ceil(len(texts) / _BATCH))
    pace = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (_WARM * steps), (steps - step) / steps)
    )
    for rows in islice(batches(torch.arange(len(texts)), _BATCH, torch.default_generator), steps):
        outputs = head(_vectors(model, [texts[row] for row in rows]))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(outputs, targets[rows.to(targets.device)]).backward()
        optimizer.step()
        pace.step()
    model.eval()


def _vectors(model: Any, texts: list[str]) -> Any:
    """The model's vectors, scaled to coordinates of about 1, ``Float32[len(texts), d]``."""
    encoded = model.tokenizer(
        texts, truncation=True, max_length=model.max_seq_length or 512, padding=True, return_tensors="pt"
    )
    vectors = model.forward({name: each.to(model.device) for name, each in encoded.items()})["sentence_embedding"]
    return vectors * math.sqrt(vectors.shape[1])
