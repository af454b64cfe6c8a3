"""Steering an answer to its phrases while it is sampled: public words alone, so nothing here is private.

A text may not end before its phrases are there. The next token of a phrase that has begun is made likelier, its last
word is not lengthened ("seek" to "seekers"), and the first token of a missing one is made likelier too: the more, the
longer the text goes on without it, and as likely as the end where the text would end. No four tokens come twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from understudy.base.lazy import torch

BEGIN, GROWS, CONTINUE = 1.0, 0.25, 6.0  # added to logits: for a first token, each token later, for a next token
PATIENCE = 5  # tokens for each phrase, after which first tokens gain
_REPEAT = 4
_MARKS = (".", "!", "?", ":")


class Steering:
    """One answer's.

    Args:
        ends: the tokens that end an answer.
        most: its longest length in tokens; in the last sixth the text may end as it is.
        longer: the tokens that lengthen a word, as of :func:`lengthening`; None: none is known.
    """

    def __init__(
        self, phrases: Sequence[str], tokenizer: Any, ends: Iterable[int], *, most: int, longer: Any = None
    ) -> None:
        self._tokenizer = tokenizer
        self._longer = longer
        self._ends = sorted(ends)
        self._forms = {_there(phrase): _forms(tokenizer, phrase) for phrase in phrases}
        self._most = most * 5 // 6

    def steer(self, logits: Any, answer: list[int]) -> None:
        """Change a row's ``logits``, ``Float[V]``, in place, given the tokens of the ``answer`` so far."""
        logits[_repeating(answer)] = float("-inf")
        text = self._tokenizer.decode(answer, skip_special_tokens=True)
        missing = [forms for there, forms in self._forms.items() if not there.search(text)]
        if self._longer is not None and any(
            answer[-len(form) :] == form for forms in self._forms.values() for form in forms
        ):
            logits[self._longer] = float("-inf")
        if not missing or not answer or len(answer) >= self._most:
            return
        end, best = float(logits[self._ends].max()), float(logits.max())
        logits[self._ends] = float("-inf")
        done = len(self._forms) - len(missing)
        gain = BEGIN + GROWS * max(0, len(answer) - PATIENCE * (done + 1))
        capital = text.rstrip().endswith(_MARKS)
        for forms in missing:
            for form in forms[:1] if capital else forms:
                begun = _begun(form, answer)
                if begun:
                    logits[form[begun]] += CONTINUE
                else:
                    first = float(logits[form[0]]) + gain
                    logits[form[0]] = max(first, end) if end >= best else first


def lengthening(tokenizer: Any) -> Any:
    """``Int64[n]``: the tokens that go on with a word, of a tokenizer by bytes: letters and digits without a blank."""
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return torch.tensor(
        [number for number, name in enumerate(names) if name[:1].isalnum() and not name.startswith("Ġ")]
    )


def _there(phrase: str) -> re.Pattern[str]:
    """Finds the phrase's words in a row, in either case."""
    words = r"\W+".join(re.escape(word) for word in re.findall(r"\w+", phrase))
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


def _forms(tokenizer: Any, phrase: str) -> list[list[int]]:
    """The phrase in tokens, as it stands inside a text: with a capital, and as it is where that differs."""
    written = dict.fromkeys((f" {phrase[:1].upper()}{phrase[1:]}", f" {phrase}"))
    return [list(tokenizer(each, add_special_tokens=False)["input_ids"]) for each in written]


def _begun(form: list[int], answer: list[int]) -> int:
    """How many of the form's first tokens, and not all, the answer ends with."""
    for count in range(min(len(form) - 1, len(answer)), 0, -1):
        if answer[-count:] == form[:count]:
            return count
    return 0


def _repeating(answer: list[int]) -> list[int]:
    """The tokens with which the answer would end in a run that stands in it already."""
    before = answer[1 - _REPEAT :]
    return [
        answer[start + _REPEAT - 1]
        for start in range(len(answer) - _REPEAT + 1)
        if answer[start : start + _REPEAT - 1] == before
    ]
