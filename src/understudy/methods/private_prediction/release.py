"""Private prediction, the only code that reads private records.

Amin et al. 2024, *Private prediction for large-scale synthetic text generation*, Algorithm 1:

    for each label, for each of its batches (keyed hash of the record):          batches are disjoint
        prompts = one for each private text of the batch, and one without any
        while private tokens are left:                                           charge "tokens", once for all batches
            draw a text token by token from the prompts' next-token logits       drawing.py
            store it, then use it

Guarantee:
    Unit: a record, or an owner. All noise and its accounting is one
    :class:`~understudy.privacy.tokens.PrivateTokens`, paid once for all batches, since they are disjoint. What it takes
    of the private rows are the exact integer sums of :class:`~understudy.prediction.sums.TokenSums`; a row's own values
    depend on its own text alone (:mod:`understudy.models.contexts`). Empty batches run like any other. A text is
    stored, and confirmed in the ledger, before it is used; one that a crash lost is drawn again, and a test that was
    open then counts as spent.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from understudy.corpus.bounding import BoundedCorpus
from understudy.errors import ModelError
from understudy.methods.private_prediction.batches import Batch, sort_into_batches
from understudy.methods.private_prediction.collected import Text, collected
from understudy.methods.private_prediction.drawing import Draw
from understudy.methods.private_prediction.parameters import PrivatePredictionParameters
from understudy.methods.private_prediction.plan import mechanism_of, part_name
from understudy.methods.protocol import Arrays, Released, ReleaseTools
from understudy.models.causal import CausalModel
from understudy.models.contexts import Contexts
from understudy.models.memory import is_out_of_memory
from understudy.models.threads import worker_pool
from understudy.prediction.prompting import LabelPrompt, ask_for_texts
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.tokens import BatchTokens, OpenTokens


def release(
    parameters: PrivatePredictionParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools
) -> Released:
    """Draw texts for every batch until its private tokens are used up, or ``texts_per_batch`` are there."""
    model, prompts = tools.model, tools.prompts
    assert model is not None, "the run loads one where needs_release_model says so"
    assert prompts is not None, "and prompts"
    assert isinstance(plan.budget, Budget), "private prediction protects no secrets"
    asked = ask_for_texts(
        parameters, prompts, model, label_names=tools.label_names, record_columns=tools.record_columns
    )
    fitting = min(each.most for each in asked.labels)
    if fitting < parameters.private_text_tokens:
        tools.say(
            f"Private texts are cut to {fitting} tokens, not {parameters.private_text_tokens}: no more fit the model's "
            f"window of {model.window}."
        )
    mechanism = mechanism_of(parameters, plan.budget)
    batches = sort_into_batches(
        corpus,
        lambda text, label: asked.labels[label].private(text),
        labels=tools.labels,
        batches=parameters.declared_batches,
    )
    tools.diary({"private texts cut": batches.cut, "to tokens": [each.most for each in asked.labels]})
    drawing = _Drawing(
        model,
        Draw(parameters.clip, mechanism, parameters.top_k, parameters.public_temperature, tools.noise, model.encode),
        mechanism.open(tools.receipt, tools.noise),
        parameters.texts_per_batch or mechanism.tokens,
        tools,
    )
    runs = [
        _BatchRun(drawing, asked.labels[label], batch, label, number)
        for label, of_label in enumerate(batches.of_label)
        for number, batch in enumerate(of_label)
    ]
    return collected(parameters, asked, _all_texts(runs, drawing), mechanism, tools)


_REPORTS = 50  # lines of progress, at most about


@dataclass(frozen=True)
class _Drawing:
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
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def rows_at_once(self) -> int:
        """Rows of a block in the model."""
        return self.model.rows_at_once(self.draw.mechanism.batch_size)

    def check(self) -> None:
        """Raise where the run is being stopped: the text in the making is not stored, and drawn again."""
        if self.stopped.is_set():
            raise _Stopped


class _Stopped(Exception):
    """Another thread failed, or the user stopped the run."""


class _BatchRun:
    """The texts of one batch; used by one thread."""

    def __init__(self, drawing: _Drawing, prompt: LabelPrompt, batch: Batch, label: int, number: int) -> None:
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
        self._drawing.check()
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
            self._drawing.check,
        )
        return {
            "tokens": np.asarray(drawn.tokens, dtype=np.int32),
            "private": np.asarray(drawn.private, dtype=np.bool_),
            "runs": np.asarray(tokens.runs_spent - before, dtype=np.int64),
            "ended": np.asarray(drawn.ended),
        }

    @property
    def length(self) -> int:
        """Tokens of each row."""
        return self._prompt.length

    @cached_property
    def _tokens(self) -> BatchTokens:
        """The batch's counter, made at the first draw: what the stored texts have used is known then."""
        name = f"{self._label}/{self._number}"
        return self._drawing.charge.batch(name, tokens_spent=self._tokens_spent, runs_spent=self._runs_spent)

    @cached_property
    def _contexts(self) -> Contexts:
        """The batch's rows in the model, the public one first."""
        return self._prompt.contexts(self._batch.rows, rows_at_once=self._drawing.rows_at_once)


def _all_texts(runs: Sequence[_BatchRun], drawing: _Drawing) -> list[Text]:
    """The texts of all batches, several of which are in flight at once."""
    model, at_once = drawing.model, drawing.rows_at_once
    blocks = -(-(drawing.draw.mechanism.batch_size + 1) // at_once)
    in_flight = model.batches_in_flight(blocks * at_once, max(run.length for run in runs))
    drawing.tools.say(f"Drawing texts for {len(runs)} batches, {in_flight} at a time, with {model.model_id}.")
    pool = worker_pool(model.device, most=in_flight)
    try:
        running = [pool.submit(run.texts) for run in runs]
        texts = private = 0
        for done, finished in enumerate(as_completed(running), start=1):
            texts += len(finished.result())
            private += sum(int(text.private.sum()) for text in finished.result())
            if done == len(runs) or done % -(-len(runs) // _REPORTS) == 0:
                drawing.tools.say(f"{done} of {len(runs)} batches done: {texts} texts of {private} private tokens.")
        return [text for each in running for text in each.result()]
    finally:
        drawing.stopped.set()
        pool.shutdown(wait=True, cancel_futures=True)
