"""Fit the judge: which of the writer's texts does a reader take for sensible texts of their kind?

``judged.jsonl.gz`` has texts that the writer wrote around words of the public sources, and what readers said of each;
they knew its kind, not its words.

    python -m training.judge WRITER.safetensors
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from training.judged import Judged, load_judged
from understudy.models.builtin import CHAT, builtin_path
from understudy.models.types import Message
from understudy.models.weights import load_weights, render
from understudy.models.writer import merge

LAYER = 20  # of 30; its neighbours do as well, the first and last ones worse
_ROWS = 32
_PENALTY = 4e-3  # C of the logistic regression, on standardised states


def states(judged: Sequence[Judged]) -> NDArray[np.float32]:
    """Return the mean state of each text's tokens in the writer, ``Float32[N, H]``."""
    model, tokenizer, _ = load_weights(builtin_path(CHAT), name="builtin", device="cpu", dtype="float32")
    merge(model)
    model.model.layers = model.model.layers[: LAYER + 1]  # the others are not needed
    asked = [render(tokenizer, [Message("system", each.prompt)]) for each in judged]
    prompts, texts = (
        tokenizer(each, add_special_tokens=False)["input_ids"] for each in (asked, [each.text for each in judged])
    )
    rows = [torch.tensor([*prompt, *text]) for prompt, text in zip(prompts, texts, strict=True)]
    made = np.empty((len(rows), model.config.hidden_size), np.float32)
    order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
    for at in range(0, len(order), _ROWS):
        places = order[at : at + _ROWS]
        batch = torch.nn.utils.rnn.pad_sequence([rows[place] for place in places], batch_first=True)
        with torch.inference_mode():
            found = model.model(input_ids=batch, output_hidden_states=True, use_cache=False).hidden_states[LAYER]
        for place, state in zip(places, found, strict=True):
            made[place] = state[len(prompts[place]) : len(rows[place])].mean(0).numpy()
    return made


def main() -> None:
    """Fit the judge, and store it in the writer's file, which must be the shipped one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("writer", type=Path)
    given = parser.parse_args()
    judged = load_judged()
    said = np.array([each.sensible for each in judged])
    fitted = make_pipeline(StandardScaler(), LogisticRegression(C=_PENALTY, max_iter=500))
    found = states(judged)
    sources = [each.source for each in judged]
    unseen = cross_val_predict(fitted, found, said, groups=sources, cv=LeaveOneGroupOut(), method="decision_function")
    scaler, regression = (step for _, step in fitted.fit(found, said).steps)
    weights = regression.coef_[0] / scaler.scale_
    judge = {
        "judge.layer": torch.tensor(LAYER),
        "judge.weights": torch.tensor(weights, dtype=torch.float32),
        "judge.bias": torch.tensor(float(regression.intercept_[0] - weights @ scaler.mean_)),
    }
    save_file({**load_file(given.writer), **judge}, given.writer)
    print(f"{len(judged)} texts, {said.mean():.2f} sensible; AUC on sources left out {roc_auc_score(said, unseen):.3f}")


if __name__ == "__main__":
    main()
