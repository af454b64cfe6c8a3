"""What is drawn follows the law that is charged: one text moves a token's log-odds by 2c / (s tau), and no more."""

from __future__ import annotations

import math
from typing import Any

import pytest
from predictions import NAMES, method, prompts
from script_model import ScriptModel

from understudy.methods.private_prediction.release import TokenSampler
from understudy.methods.shared.decoding.prompting import build_prompts
from understudy.privacy.noise import SystemNoise
from understudy.privacy.tokens import PrivateTokens, TokenTest

A, B = ord("a"), ord("b")
SIZE, CLIP, TEMPERATURE = 2, 0.5, 0.25
SHIFT = 2 * CLIP / (SIZE * TEMPERATURE)
DRAWS = 1500
WITHIN = 6 * math.sqrt(2 / (DRAWS * 0.1))


class Coin(ScriptModel):
    """Without private text two tokens are equally likely; with one the first is certain."""

    def logits(self, text: bytes, drawn: bytes) -> Any:
        logits = super().logits(text, drawn)
        logits[:] = -1000.0
        logits[[A, B]] = 0.0
        if text:
            logits[A] = 40.0
        return logits


def first_tokens(mechanism: PrivateTokens, texts: int, draws: int) -> list[tuple[int, bool]]:
    """The first token and whether it was private, with so many private texts in the batch."""
    model = Coin()
    asked = build_prompts(method(), prompts(1), model, label_names=NAMES.names, record_columns=())  # type: ignore[arg-type]
    prompt, paid = asked.labels[0], mechanism.open(SystemNoise())
    contexts = prompt.contexts([list(b"text")] * texts, rows_at_once=SIZE + 1)
    sampler = TokenSampler("difference", mechanism, 2, model.encode)
    found = []
    for _ in range(draws):
        decoded = sampler.text(contexts, [1] * texts, paid.batch(), prompt.ending.open(prompt.model))
        found.append((decoded.tokens[0], decoded.private[0]))
    return found


def log_odds(mechanism: PrivateTokens, texts: int) -> float:
    """Of the first token drawn."""
    found = [token for token, private in first_tokens(mechanism, texts, DRAWS) if private]
    assert len(found) == DRAWS == found.count(A) + found.count(B)
    return math.log((found.count(A) + 0.5) / (found.count(B) + 0.5))


def test_one_text_moves_the_log_odds_by_what_is_charged_and_a_batch_without_one_draws_as_the_model() -> None:
    mechanism = PrivateTokens(CLIP, SIZE, TEMPERATURE, 1)
    assert math.sqrt(8 * mechanism.rho_token) == pytest.approx(SHIFT), "rho is the range of epsilon squared over 8"
    without, with_one = log_odds(mechanism, 0), log_odds(mechanism, 1)
    assert abs(without) < WITHIN
    assert abs(with_one - without - SHIFT) < WITHIN


def test_a_draw_that_forgets_the_divisor_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = PrivateTokens.scale.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(PrivateTokens, "scale", property(lambda self: scale(self) / self.batch_size))
    mechanism = PrivateTokens(CLIP, SIZE, TEMPERATURE, 1)
    assert log_odds(mechanism, 1) - log_odds(mechanism, 0) > SHIFT + WITHIN


@pytest.mark.parametrize(("texts", "distance"), [(0, 1.0), (1, 0.5), (2, 1.0), (3, 1.5)])
def test_a_token_is_private_where_the_batch_is_further_from_public_than_the_threshold(
    texts: int, distance: float
) -> None:
    """(0.5, 0.5) is public, a text says (1, 0), and the divisor is 2 whatever the batch holds."""
    for threshold in (0.3, 0.7, 1.3, 1.9):
        mechanism = PrivateTokens(CLIP, SIZE, TEMPERATURE, 1, TokenTest(threshold, 1e-4))
        assert {private for _, private in first_tokens(mechanism, texts, 5)} == {distance > threshold}
