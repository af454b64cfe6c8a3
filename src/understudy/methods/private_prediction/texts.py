"""The texts of every batch: stored ones read, new ones drawn and stored, several batches in flight at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from understudy.decoding.prompting import LabelPrompt
from understudy.decoding.workers import Stop, run_together
from understudy.errors import ModelError
from understudy.methods.base import Arrays, ReleaseTools
from understudy.methods.private_prediction.batches import Batch
from understudy.methods.private_prediction.collected import Text
from understudy.methods.private_prediction.drawing import Draw
from understudy.methods.private_prediction.plan import part_name
from understudy.models.causal import CausalModel
from understudy.models.contexts import Contexts
from understudy.models.memory import is_out_of_memory
from understudy.privacy.tokens import BatchTokens, OpenTokens

_REPORTS = 50  # lines of progress, at most about


@dataclass(frozen=True)
class Drawing:
    """What all batches share.

    Args:
        most_texts: of a batch; where nothing else is said as many as private tokens, which binds with a sparse vector
            only: a batch that is always found near to public would never use them up.
    """

    model: CausalModel
    draw: Draw
    charge: OpenTokens
    most_texts: int
    tools: ReleaseTools
    stop: Stop = field(default_factory=Stop)

    @property
    def rows_at_once(self) -> int:
        """Rows of a block in the model."""
        return self.model.rows_at_once(self.draw.mechanism.batch_size)


class BatchTexts:
    """The texts of one batch; used by one thread."""

    def __init__(self, drawing: Drawing, prompt: LabelPrompt, batch: Batch, label: int, number: int) -> None:
        self._drawing = drawing
        self._prompt = prompt
        self._batch = batch
        self._label = label
        self._number = number
        self._tokens_spent = self._runs_spent = 0  # by stored texts

    def texts(self) -> list[Text]:
        """The stored texts, and new ones while private tokens are left."""
        texts: list[Text] = []
        drawing, tokens = self._drawing, self._drawing.draw.mechanism.tokens
        while self._tokens_spent < tokens and len(texts) < drawing.most_texts:
            name = part_name(self._label, self._number, len(texts))
            found = drawing.tools.keep(name, self._draw)
            self._tokens_spent += int(found["private"].sum())
            self._runs_spent += int(found["runs"])
            text = Text(self._label, self._number, len(texts), found["tokens"], found["private"], bool(found["ended"]))
            texts.append(text)
        self.__dict__.pop("_contexts", None)  # gigabytes
        return texts

    def _draw(self) -> Arrays:
        self._drawing.stop.check()
        try:
            return self._draw_text()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        raise ModelError(  # outside the handler: the error holds tensors, and sizes that are private
            "The texts of a batch do not fit into memory beside the model.",
            "Run the same command where there is more memory. In another run (which charges again) declare more "
            "batches, show less of each text (--private-text-tokens), or name a smaller model.",
        )

    def _draw_text(self) -> Arrays:
        tokens = self._tokens
        before = tokens.runs_spent
        drawn = self._drawing.draw.text(
            self._contexts,
            self._batch.shares,
            tokens,
            self._prompt.ending.open(self._prompt.model),
            self._drawing.stop.check,
        )
        return {
            "tokens": np.asarray(drawn.tokens, dtype=np.int32),
            "private": np.asarray(drawn.private, dtype=np.bool_),
            "runs": np.asarray(tokens.runs_spent - before, dtype=np.int64),
            "ended": np.asarray(drawn.ended),
        }

    @cached_property
    def _tokens(self) -> BatchTokens:
        """The batch's counter, made at the first draw: what the stored texts have used is known then."""
        name = f"{self._label}/{self._number}"
        return self._drawing.charge.batch(name, tokens_spent=self._tokens_spent, runs_spent=self._runs_spent)

    @cached_property
    def _contexts(self) -> Contexts:
        """The batch's rows in the model, the public one first."""
        return self._prompt.contexts(
            self._batch.rows,
            rows_at_once=self._drawing.rows_at_once,
            candidates=self._drawing.draw.top_k or None,
            check=self._drawing.stop.check,
        )


def draw_all(runs: Sequence[BatchTexts], drawing: Drawing, *, in_flight: int) -> list[Text]:
    """The texts of all batches, ``in_flight`` of them at once."""
    batches = texts = private = 0

    def tell(found: list[Text]) -> None:
        nonlocal batches, texts, private
        batches, texts = batches + 1, texts + len(found)
        private += sum(int(text.private.sum()) for text in found)
        if batches == len(runs) or batches % -(-len(runs) // _REPORTS) == 0:
            drawing.tools.say(
                f"Batches done: {batches} of {len(runs)}; texts: {texts}; private tokens in all: {private}."
            )

    tasks = [run.texts for run in runs]
    found = run_together(tasks, device=drawing.model.device, most=in_flight, stop=drawing.stop, done=tell)
    return [text for each in found for text in each]
