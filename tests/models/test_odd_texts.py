"""Models that fail on odd texts are refused before they meet a private one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.models.trials import ODD_TEXTS, require_embeds_all, require_encodes_all


class Embedding:
    model_id = "fake"
    fingerprint = "0" * 64

    def __init__(self, of_text: Callable[[str], Sequence[float]]) -> None:
        self._of_text = of_text

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self._of_text(text) for text in texts], dtype=np.float32).reshape(
            len(texts), -1 if texts else 3
        )


def test_an_embedder_that_answers_everything_is_taken_with_its_dimension() -> None:
    assert require_embeds_all(Embedding(lambda text: [1.0, 0.0, 0.0])) == 3
    assert require_embeds_all(Embedding(lambda text: [1.0, 0.0, 0.0] if text.strip() else [0.0, 0.0, 0.0])) == 3


@pytest.mark.parametrize(
    ("of_text", "problem"),
    [
        (lambda text: [1.0 / len(text), 0.0, 0.0], "fails on an odd public text .ZeroDivisionError"),
        (lambda text: [1.0] * (3 if len(text) < 99 else 4), "fails on an odd public text .ValueError"),
        (lambda text: [2.0, 0.0, 0.0], "does not answer with unit vectors"),
        (lambda text: [float("nan"), 0.0, 0.0], "does not answer with unit vectors"),
        (lambda text: [1.0], "does not answer with one vector per text"),
    ],
)
def test_an_embedder_that_does_not_is_refused(of_text: Callable[[str], Sequence[float]], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        require_embeds_all(Embedding(of_text))


def test_a_tokenizer_that_fails_on_an_odd_text_is_refused() -> None:
    class Model:
        model_id = "fake"

        def encode(self, text: str) -> list[int]:
            return [text.index(text[0])] if text else []

    whole: Any = Model()
    require_encodes_all(whole)
    for odd in ODD_TEXTS:

        class Broken(Model):
            def encode(self, text: str, odd: str = odd) -> list[int]:
                return [1 // (text != odd)]

        broken: Any = Broken()
        with pytest.raises(ModelError, match="fails on an odd public text"):
            require_encodes_all(broken)
