"""From the tokens that were decoded and sealed to what the Release holds. Post-processing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.decoding.prompting import LabelPrompts
from understudy.decoding.structured import Fault
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.private_prediction.parameters import PrivatePredictionParameters
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.tokens import PrivateTokens


@dataclass(frozen=True)
class Text:
    """A sealed text: where it comes from, its tokens, which of them are private, and whether it ended by itself."""

    label: int
    batch: int
    number: int
    tokens: NDArray[np.int32]
    private: NDArray[np.bool_]
    ended: bool


_TOO_LONG, _OUT_OF_TOKENS = "longer than --max-tokens", "cut short as the batch's last"


def collected(
    parameters: PrivatePredictionParameters,
    asked: LabelPrompts,
    decoded: Sequence[Text],
    mechanism: PrivateTokens,
    tools: ReleaseTools,
) -> Released:
    """The texts as they leave: what did not end is left out unless asked for, what is no record is kept apart."""
    texts: list[str] = []
    kept: list[Text] = []
    apart: list[str] = []
    left_out: Counter[str] = Counter()
    for each in decoded:
        text = asked.labels[each.label].read(each.tokens.tolist())
        checked = text if asked.check is None else asked.check(text)
        if not each.ended and parameters.unfinished == "drop":
            longest = len(each.tokens) >= asked.labels[each.label].ending.most_tokens
            left_out[_TOO_LONG if longest else _OUT_OF_TOKENS] += 1
        elif not text:
            left_out["empty"] += 1
        elif isinstance(checked, Fault):
            left_out[str(checked)] += 1
            apart.append(text)
        else:
            kept.append(each)
            texts.append(checked)
    assert tools.prompts is not None, "a release was made with prompts"
    document_type = tools.prompts.template.document_type
    return Released(
        _arrays(kept),
        public_inputs=asked.public_inputs(document_type, schema_source=PurePath(parameters.json_schema or "").name),
        noise_check=_noise_check(kept, decoded, left_out, mechanism, [parameters.declared_batches] * tools.labels.size),
        strings={"texts": texts, **({"no records": apart} if asked.check is not None else {})},
        notes=(
            "The texts were decoded token by token by a local model that reads private texts. Its logits are "
            "floating-point numbers, rounded to integers one text at a time; sums of these and the sampling of tokens "
            "are exact (the operating system's randomness).",
        ),
    )


def _arrays(texts: Sequence[Text]) -> dict[str, NDArray[Any]]:
    numbers = {
        "label": [text.label for text in texts],
        "batch": [text.batch for text in texts],
        "number": [text.number for text in texts],
        "tokens": [len(text.tokens) for text in texts],
        "private": [int(text.private.sum()) for text in texts],
        "ended": [int(text.ended) for text in texts],
    }
    return {name: np.asarray(values, dtype=np.int32) for name, values in numbers.items()}


def _noise_check(
    kept: Sequence[Text],
    decoded: Sequence[Text],
    left_out: Counter[str],
    mechanism: PrivateTokens,
    batches: Sequence[int],
) -> Facts:
    """What came of the tokens: sealed values and public numbers only. ``batches`` are those of each label."""
    tokens = sum(len(text.tokens) for text in decoded)
    private = sum(int(text.private.sum()) for text in decoded)
    texts = tuple(int(number) for number in np.bincount([text.label for text in kept], minlength=len(batches)))
    why = ", ".join(f"{why} {number}" for why, number in sorted(left_out.items())) or "none"
    left = sum(batches) * mechanism.tokens - private
    return Facts(
        (
            Fact("texts", texts, "texts"),
            Fact("texts_left_out", why, "texts left out"),
            Fact("tokens", tokens, "tokens decoded"),
            Fact("private_tokens", private, "of which private"),
            Fact(
                "log_odds_per_record",
                round(mechanism.log_odds, 4),
                "one record moves the log-odds of a private token by at most",
            ),
            Fact("private_tokens_left", left, "private tokens paid for and not used (release --continue)"),
        ),
        () if kept else (_warning(left_out),),
    )


def _warning(left_out: Counter[str]) -> str:
    """What to do where no text is of use."""
    (why, _), *_ = left_out.most_common(1) or [("", 0)]
    if why == _TOO_LONG:
        return "No text ended by itself. Allow more tokens per text (--max-tokens), or look at the prompt."
    if why == _OUT_OF_TOKENS:
        return "No batch had private tokens enough for a text. Ask for more (--tokens-per-batch)."
    return "No text is of use. Look at the prompt (--document-type, --prompt), or take a larger model."
