"""Private prediction, the only code that reads private records.

Amin et al. 2024, *Private prediction for large-scale synthetic text generation*, Algorithm 1:

    for each label, for each of its batches (keyed hash of the record):          batches are disjoint
        rows = one prompt for each private text of the batch, and one without any
        while private tokens are left:                                           charge "tokens", once for all batches
            decode a text token by token from the rows' next-token logits        sampler.py
            store it, have it sealed, then use it                                part "tokens/LABEL/BATCH/NUMBER"

Guarantee:
    Unit: a record, or an owner. All noise and its accounting is one
    :class:`~understudy.privacy.tokens.PrivateTokens`, paid once for all batches, since they are disjoint. What it takes
    of the private rows are the exact integer sums of :class:`~understudy.decoding.sums.TokenSums`; a row's own values
    depend on its own text alone (:mod:`understudy.models.contexts`). Empty batches run like any other. A text is
    sealed before it is used; one that a crash lost is decoded again, and a test that was open then counts as spent.
"""

from __future__ import annotations

from functools import cached_property, partial

import numpy as np

from understudy.corpus.bounding import BoundedCorpus
from understudy.decoding.prompting import LabelPrompt, build_prompts
from understudy.decoding.workers import Stop, at_once, run_together
from understudy.errors import ModelError
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.private_prediction.batches import Batch, sort_into_batches
from understudy.methods.private_prediction.collected import Text, collected
from understudy.methods.private_prediction.parameters import PrivatePredictionParameters
from understudy.methods.private_prediction.plan import TOKENS, part_name
from understudy.methods.private_prediction.sampler import TokenSampler
from understudy.models.contexts import Contexts
from understudy.models.machine import is_out_of_memory
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.tokens import BatchTokens, PaidTokens, PrivateTokens

_REPORTS = 50  # lines of progress, at most about


def release(
    parameters: PrivatePredictionParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools
) -> Released:
    """Decode texts for every batch until its private tokens are used up, or ``texts_per_batch`` are there."""
    model, prompts = tools.model, tools.prompts
    assert model is not None, "the run loads what a method needs"
    assert prompts is not None, "and prompts"
    asked = build_prompts(
        parameters, prompts, model, label_names=tools.labels.names, record_columns=tools.record_columns
    )
    fitting = min(each.most for each in asked.labels)
    if fitting < parameters.private_text_tokens:
        tools.say(
            f"Private texts are cut to {fitting} tokens, not {parameters.private_text_tokens}: no more fit the model's "
            f"window of {model.window}."
        )
    mechanism: PrivateTokens = plan.mechanism(TOKENS)
    paid: PaidTokens = tools.open(TOKENS)
    block, longest = model.rows_at_once(mechanism.batch_size), max(each.length for each in asked.labels)
    rows = -(-(mechanism.batch_size + 1) // block) * block
    in_flight = at_once(model, repeatable=paid.repeatable, rows=rows, tokens=longest)  # before a record is read
    count = tools.labels.size * parameters.declared_batches
    tools.say(f"Batches to decode texts for: {count}, of which {in_flight} at a time, with {model.model_id}.")

    batches = sort_into_batches(
        corpus,
        lambda text, label: asked.labels[label].private(text),
        labels=tools.labels.size,
        batches=parameters.declared_batches,
    )
    tools.note({"private texts cut": batches.cut, "to tokens": [each.most for each in asked.labels]})
    sampler = TokenSampler(parameters.clip, mechanism, parameters.top_k, parameters.public_temperature, model.encode)
    most, stop = parameters.texts_per_batch or mechanism.tokens, Stop()
    tasks = [
        partial(_BatchDecoder(sampler, paid, asked.labels[label], batch, (label, number), tools, stop).texts, most)
        for label, of_label in enumerate(batches.of_label)
        for number, batch in enumerate(of_label)
    ]
    progress = _Progress(len(tasks), tools)
    found = run_together(tasks, device=model.device, most=in_flight, stop=stop, done=progress)
    return collected(parameters, asked, [text for texts in found for text in texts], mechanism, tools)


class _BatchDecoder:
    """The texts of one batch; used by one thread."""

    def __init__(
        self,
        sampler: TokenSampler,
        paid: PaidTokens,
        prompt: LabelPrompt,
        batch: Batch,
        place: tuple[int, int],
        tools: ReleaseTools,
        stop: Stop,
    ) -> None:
        self._sampler = sampler
        self._paid = paid
        self._prompt = prompt
        self._batch = batch
        self._label, self._number = place
        self._tools = tools
        self._stop = stop
        self._tokens_spent = self._runs_spent = 0  # by sealed texts

    def texts(self, most: int) -> list[Text]:
        """The sealed texts, and new ones while private tokens are left.

        Args:
            most: texts; it binds with a sparse vector only where nothing else is said: a batch that is always found
                near to public would never use its private tokens up.
        """
        texts: list[Text] = []
        while self._tokens_spent < self._sampler.mechanism.tokens and len(texts) < most:
            found = self._tools.seal(part_name(self._label, self._number, len(texts)), self._decode).arrays
            self._tokens_spent += int(found["private"].sum())
            self._runs_spent += int(found["runs"])
            ended = bool(found["ended"])
            texts.append(Text(self._label, self._number, len(texts), found["tokens"], found["private"], ended))
        self.__dict__.pop("_contexts", None)  # gigabytes
        return texts

    def _decode(self) -> Arrays:
        self._stop.check()
        try:
            return self._decode_text()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        raise ModelError(  # outside the handler: the error holds tensors, and sizes that are private
            "The texts of a batch do not fit into memory beside the model.",
            "Run the same command where there is more memory. In another run (which charges again) declare more "
            "batches, show less of each text (--private-text-tokens), or name a smaller model.",
        )

    def _decode_text(self) -> Arrays:
        tokens = self._tokens
        before = tokens.runs_spent
        text = self._prompt.ending.open(self._prompt.model)
        decoded = self._sampler.text(self._contexts, self._batch.shares, tokens, text, self._stop.check)
        return {
            "tokens": np.asarray(decoded.tokens, dtype=np.int32),
            "private": np.asarray(decoded.private, dtype=np.bool_),
            "runs": np.asarray(tokens.runs_spent - before, dtype=np.int64),
            "ended": np.asarray(decoded.ended),
        }

    @cached_property
    def _tokens(self) -> BatchTokens:
        """The batch's counter, made for its first new text: what the sealed ones have used is known then."""
        name = f"{self._label}/{self._number}"
        return self._paid.batch(name, tokens_spent=self._tokens_spent, runs_spent=self._runs_spent)

    @cached_property
    def _contexts(self) -> Contexts:
        """The batch's rows in the model, the public one first."""
        return self._prompt.contexts(
            self._batch.rows,
            rows_at_once=self._prompt.model.rows_at_once(self._sampler.mechanism.batch_size),
            candidates=self._sampler.top_k or None,
            check=self._stop.check,
        )


class _Progress:
    """Says now and then how far the batches are."""

    def __init__(self, batches: int, tools: ReleaseTools) -> None:
        self._of, self._tools = batches, tools
        self._batches = self._texts = self._private = 0

    def __call__(self, texts: list[Text]) -> None:
        self._batches, self._texts = self._batches + 1, self._texts + len(texts)
        self._private += sum(int(text.private.sum()) for text in texts)
        if self._batches == self._of or self._batches % -(-self._of // _REPORTS) == 0:
            self._tools.say(
                f"Batches done: {self._batches} of {self._of}; texts: {self._texts}; private tokens in all: "
                f"{self._private}."
            )
