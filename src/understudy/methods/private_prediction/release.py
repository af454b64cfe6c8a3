"""Private prediction, the only code that reads private records.

Amin et al. 2024, *Private prediction for large-scale synthetic text generation*, Algorithm 1:

    for each label, for each of its batches (keyed hash of the record):          batches are disjoint
        rows = one prompt for each private text of the batch, and one without any
        while private tokens are left:                                           charge "tokens", once for all batches
            sample a row of the released columns, which all rows go on with      where there are typed columns: free
            decode a text token by token from the rows' next-token logits        sampler.py
            store it, have it sealed, then use it                                part "tokens/LABEL/BATCH/NUMBER"

Guarantee:
    Unit: a record, or an owner. All noise and its accounting is one
    :class:`~understudy.privacy.tokens.PrivateTokens`, paid once for all batches, since they are disjoint. What it takes
    of the private rows are the exact integer sums of :class:`~understudy.methods.shared.decoding.sums.TokenSums`; a
    row's own values depend on its own text (behind its own cells) alone (:mod:`understudy.models.contexts`), besides
    sampled rows, which are made of the columns' released values: charges compose adaptively. Empty batches run like any
    other. A text is sealed before it is used; one that a crash lost is decoded again, and a test that was open then
    counts as spent.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.columns import Column, in_words
from understudy.base.errors import ModelError
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Preparation, Released, ReleaseTools, needed
from understudy.methods.private_prediction.plan import ROWS, TOKENS, PrivatePredictionParameters, part_name
from understudy.methods.private_prediction.sampler import TokenSampler
from understudy.methods.shared.decoding.prompting import LabelPrompt, LabelPrompts, build_prompts
from understudy.methods.shared.decoding.structured import Fault
from understudy.methods.shared.decoding.workers import Stop, at_once, run_together
from understudy.models.contexts import Contexts
from understudy.models.machine import is_out_of_memory
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.tokens import BatchTokens, PaidTokens, PrivateTokens

_REPORTS = 50  # lines of progress, at most about


def release(
    parameters: PrivatePredictionParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools
) -> Released:
    """Decode texts for every batch until its private tokens are used up, or ``texts_per_batch`` are there."""
    model, prompts = needed(tools.model), needed(tools.prompts)
    asked = build_prompts(
        parameters,
        prompts,
        model,
        label_names=tools.labels.names,
        record_columns=tools.record_columns,
        columns=columns_shown(tools),
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
        columns=columns_shown(tools),
    )
    tools.note({"private texts cut": batches.cut, "to tokens": [each.most for each in asked.labels]})
    sampler = TokenSampler(parameters.clip, mechanism, parameters.top_k, model.encode)
    most, stop = parameters.texts_per_batch or mechanism.tokens, Stop()
    tasks = [
        partial(_BatchDecoder(sampler, paid, asked.labels[label], batch, label, number, tools, stop).texts, most)
        for label, of_label in enumerate(batches.of_label)
        for number, batch in enumerate(of_label)
    ]
    progress = _Progress(len(tasks), tools)
    found = run_together(tasks, device=model.device, most=in_flight, stop=stop, done=progress)
    return collected(parameters, asked, [text for texts in found for text in texts], mechanism, tools)


@dataclass(repr=False)
class _BatchDecoder:
    """The texts of one batch; used by one thread."""

    sampler: TokenSampler
    paid: PaidTokens
    prompt: LabelPrompt
    batch: Batch
    label: int
    number: int
    tools: ReleaseTools
    stop: Stop
    tokens_spent: int = 0  # by sealed texts, as the next
    runs_spent: int = 0

    def texts(self, most: int) -> list[Text]:
        """The sealed texts, and new ones while private tokens are left.

        Args:
            most: texts; it binds with a sparse vector only where nothing else is said: a batch that is always found
                near to public would never use its private tokens up.
        """
        texts: list[Text] = []
        rows = None
        if self.tools.rows is not None and columns_shown(self.tools):
            rows = self.tools.rows((self.label, self.number))
        while self.tokens_spent < self.sampler.mechanism.tokens and len(texts) < most:
            row = None if rows is None else rows.take(self.label)
            decode = partial(self._decode, [] if row is None else self.prompt.behind(row.cells))
            found = self.tools.seal(part_name(self.label, self.number, len(texts)), decode).arrays
            self.tokens_spent += int(found["private"].sum())
            self.runs_spent += int(found["runs"])
            ended = bool(found["ended"])
            cells = None if row is None else row.numbers
            texts.append(Text(self.label, self.number, len(texts), found["tokens"], found["private"], ended, cells))
        self.__dict__.pop("_contexts", None)  # gigabytes
        return texts

    def _decode(self, behind: Sequence[int]) -> Arrays:
        self.stop.check()
        try:
            return self._decode_text(behind)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        raise ModelError(  # outside the handler: the error holds tensors, and sizes that are private
            "The texts of a batch do not fit into memory beside the model.",
            "Run the same command where there is more memory. In another run (which charges again) declare more "
            "batches, show less of each text (--private-text-tokens), or name a smaller model.",
        )

    def _decode_text(self, behind: Sequence[int]) -> Arrays:
        tokens = self._tokens
        before = tokens.runs_spent
        text = self.prompt.ending.open(self.prompt.model)
        decoded = self.sampler.text(self._contexts, self.batch.shares, tokens, text, self.stop.check, behind=behind)
        return {
            "tokens": np.asarray(decoded.tokens, dtype=np.int32),
            "private": np.asarray(decoded.private, dtype=np.bool_),
            "runs": np.asarray(tokens.runs_spent - before, dtype=np.int64),
            "ended": np.asarray(decoded.ended),
        }

    @cached_property
    def _tokens(self) -> BatchTokens:
        """The batch's counter, made for its first new text: what the sealed ones have used is known then."""
        name = f"{self.label}/{self.number}"
        return self.paid.batch(name, tokens_spent=self.tokens_spent, runs_spent=self.runs_spent)

    @cached_property
    def _contexts(self) -> Contexts:
        """The batch's rows in the model, the public one first."""
        return self.prompt.contexts(
            self.batch.rows,
            rows_at_once=self.prompt.model.rows_at_once(self.sampler.mechanism.batch_size),
            candidates=self.sampler.top_k or None,
            check=self.stop.check,
        )


class _Progress:
    """Says now and then how far the batches are."""

    def __init__(self, batches: int, tools: ReleaseTools) -> None:
        self._of, self._tools = batches, tools
        self._batches = self._texts = self._private = 0
        tools.progress("batches", 0, batches)

    def __call__(self, texts: list[Text]) -> None:
        self._batches, self._texts = self._batches + 1, self._texts + len(texts)
        self._private += sum(int(text.private.sum()) for text in texts)
        self._tools.progress("batches", self._batches, self._of)
        if self._batches == self._of or self._batches % -(-self._of // _REPORTS) == 0:
            self._tools.say(
                f"Batches done: {self._batches} of {self._of}; texts: {self._texts}; private tokens in all: "
                f"{self._private}."
            )


@dataclass(repr=False)
class Batch:
    """The rows of one batch: own tokens, and of how many rows of the same unit each is one. Private."""

    rows: list[Sequence[int]] = field(default_factory=list)
    shares: list[int] = field(default_factory=list)


@dataclass(repr=False)
class Batches:
    """Every batch of every label, empty ones too; ``cut`` texts were too long. Private."""

    of_label: list[list[Batch]]
    cut: int = 0


def sort_into_batches(
    corpus: BoundedCorpus,
    tokenise: Callable[[str, int], tuple[list[int], bool]],
    *,
    labels: int,
    batches: int,
    columns: Sequence[Column] = (),
) -> Batches:
    """One pass over the private records.

    A record's batch within its label is the keyed hash of its owner, or of its own label and text, modulo the public
    number of batches (64 bits: no batch is favoured by more than batches / 2^64). Adding a record moves no other.

    Args:
        tokenise: a text and its label into the own tokens of its row; and whether it had to be cut.
        batches: of each label; public.
        columns: typed ones, whose cells each text stands behind; empty for none.
    """
    made = Batches([[Batch() for _ in range(batches)] for _ in range(labels)])
    for records in corpus.batches():
        texts = records.texts
        if columns and records.cells is not None:
            cells = records.cells.tolist()
            texts = [f"{in_words(columns, own)}\n{text}" for own, text in zip(cells, texts, strict=True)]
        entries = zip(texts, records.labels.tolist(), records.shares.tolist(), records.hashes(), strict=True)
        for text, label, share, number in entries:
            row, was_cut = tokenise(text, label)
            batch = made.of_label[label][number % batches]
            batch.rows.append(array("i", row))  # a quarter of a list's memory, or less
            batch.shares.append(share)
            made.cut += was_cut
    return made


def columns_shown(preparation: Preparation) -> tuple[Column, ...]:
    """The typed columns that texts stand behind: not where they are records themselves."""
    return () if preparation.record_columns else preparation.columns


@dataclass(frozen=True)
class Text:
    """A sealed text: where it comes from, its tokens, which of them are private, whether it ended by itself, and the
    cells of the row that it stands behind."""

    label: int
    batch: int
    number: int
    tokens: NDArray[np.int32]
    private: NDArray[np.bool_]
    ended: bool
    cells: tuple[int, ...] | None = None


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
    document_type = needed(tools.prompts).template.document_type
    return Released(
        _arrays(kept, len(columns_shown(tools))),
        public_inputs=asked.public_inputs(document_type, schema_source=PurePath(parameters.json_schema or "").name),
        noise_check=_noise_check(kept, decoded, left_out, mechanism, [parameters.declared_batches] * tools.labels.size),
        strings={"texts": texts, **({"no records": apart} if asked.check is not None else {})},
        notes=(
            "The texts were decoded token by token by a local model that reads private texts. Its logits are "
            "floating-point numbers, rounded to integers one text at a time; sums of these and the sampling of tokens "
            "are exact (the operating system's randomness).",
        ),
    )


def _arrays(texts: Sequence[Text], columns: int) -> dict[str, NDArray[Any]]:
    numbers = {
        "label": [text.label for text in texts],
        "batch": [text.batch for text in texts],
        "number": [text.number for text in texts],
        "tokens": [len(text.tokens) for text in texts],
        "private": [int(text.private.sum()) for text in texts],
        "ended": [int(text.ended) for text in texts],
    }
    arrays = {name: np.asarray(values, dtype=np.int32) for name, values in numbers.items()}
    if columns:
        arrays[ROWS] = np.array([text.cells for text in texts], dtype=np.int32).reshape(len(texts), columns)
    return arrays


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
