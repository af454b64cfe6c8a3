"""Private prediction, the only code that reads private records.

Amin et al. 2024, *Private prediction for large-scale synthetic text generation*, Algorithm 1:

    for each label, for each of its batches (keyed hash of the record):          batches are disjoint
        rows = one prompt for each private text of the batch, and one without any
        while private tokens are left:                                           charge "tokens", once for all batches
            sample a row of the released columns, which all rows go on with      where there are typed columns: free
            decode a text token by token from the rows' next-token logits
            store it, have it sealed, then use it                                part "tokens/LABEL/BATCH/NUMBER"

One text (with InvisibleInk's differences, 2025), until it ends:

    z_pub      = next-token logits without private text                                       public
    candidates = the k tokens likeliest by z_pub (differences: those within 2C/s of the k-th)  public
    d          = distance of the batch's mean distribution from the public one, + noise       with a sparse vector
    token      = if d is near: sampled from softmax(z_pub / public temperature)                costs no token
                 else: sampled from softmax(sum of clipped logits / (s tau))                   one private token
    then what must follow by the public form of a record (its next key)                       no sampling

Guarantee:
    Unit: a record, or an owner. All noise and its accounting is one
    :class:`~understudy.privacy.tokens.PrivateTokens`, paid once for all batches, since they are disjoint. What it takes
    of the private rows are the exact integer sums of :class:`~understudy.methods.shared.decoding.sums.TokenSums`; a
    row's own values depend on its own text (behind its own cells) alone (:mod:`understudy.models.shared_prefix`),
    besides sampled rows, which are made of the columns' released values: charges compose adaptively. Empty batches run
    like any other. A text is sealed before it is used; one that a crash lost is decoded again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ModelError
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Preparation, Released, ReleaseTools, needed
from understudy.methods.batched_prompts import Batch, Decoded, Stop, label_prompts, run_together, sort_into_batches
from understudy.methods.private_prediction.plan import ROWS, TOKENS, Clip, PrivatePredictionParameters
from understudy.methods.shared.decoding.ending import OpenText
from understudy.methods.shared.decoding.prompting import LabelPrompt, LabelPrompts
from understudy.methods.shared.decoding.sums import Candidates, TokenSums, distance_from_public, public_candidates
from understudy.models.machine import is_out_of_memory
from understudy.models.shared_prefix import Contexts
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays
from understudy.privacy.tokens import BatchTokens, PaidTokens, PrivateTokens, TokenTest
from understudy.schema.columns import Column

_REPORTS = 50  # lines of progress, at most about


def prepare(
    parameters: PrivatePredictionParameters, corpus: BoundedCorpus, plan: Plan, preparation: Preparation
) -> None:
    """Test, before anything is charged, that rows are computed independently on this device."""
    _ = parameters.declared_batches
    asked = label_prompts(parameters, preparation, columns_shown(preparation))
    for label in {each.shape: each for each in asked.labels}.values():
        rows_at_once = label.model.rows_at_once(parameters.resolved.batch_size)
        label.contexts((), rows_at_once=rows_at_once, candidates=parameters.top_k or None).public_logits()


def columns_shown(found: Preparation) -> tuple[Column, ...]:
    """Return the typed columns whose values precede each text; empty if texts are records themselves."""
    return () if found.record_columns else found.columns


def release(
    parameters: PrivatePredictionParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools
) -> Released:
    """Decode texts for every batch until its private tokens are used up, or ``texts_per_batch`` are there."""
    model, asked = needed(tools.model), label_prompts(parameters, tools, columns_shown(tools))
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
    in_flight = 1 if paid.repeatable else model.batches_in_flight(rows, longest)  # before a record is read
    count = tools.labels.size * parameters.declared_batches
    tools.say(f"Batches to decode texts for: {count}, {in_flight} at a time, with {model.model_id}.")

    of_label, columns = parameters.declared_batches, columns_shown(tools)
    batches = sort_into_batches(corpus, asked.private, labels=tools.labels.size, batches=of_label, columns=columns)
    tools.note({"private texts cut": batches.cut, "to tokens": [each.most for each in asked.labels]})
    sampler = TokenSampler(parameters.clip, mechanism, parameters.top_k, model.encode, parameters.public_temperature)
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
    """Decodes the texts of one batch, in one thread."""

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
        """Return at most ``most`` texts: those already stored, and new ones while private tokens are left.

        With a sparse vector, a batch whose predictions stay close to the public one never uses up its private tokens,
        and ends at ``most``.
        """
        texts: list[Text] = []
        shown = self.tools.rows is not None and columns_shown(self.tools)
        rows = needed(self.tools.rows)((self.label, self.number)) if shown else None
        while self.tokens_spent < self.sampler.mechanism.tokens and len(texts) < most:
            row = None if rows is None else rows.take(self.label)
            decode = partial(self._decode, [] if row is None else self.prompt.behind(row.cells))
            found = self.tools.seal(f"{TOKENS}/{self.label}/{self.number}/{len(texts)}", decode).arrays
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
            "The texts of a batch and the model do not fit into memory together.",
            "Run the same command on a machine with more memory. In a new run (which charges again) declare more "
            "batches, show less of each text (--private-text-tokens), or name a smaller model.",
        )

    def _decode_text(self, behind: Sequence[int]) -> Arrays:
        text, check, tokens = self.prompt.ending.open(self.prompt.model), self.stop.check, self._tokens
        before = tokens.runs_spent
        decoded = self.sampler.text(self._contexts, self.batch.shares, tokens, text, check, behind=behind)
        return {
            "tokens": np.asarray(decoded.tokens, dtype=np.int32),
            "private": np.asarray(decoded.noisy, dtype=np.bool_),
            "runs": np.asarray(tokens.runs_spent - before, dtype=np.int64),
            "ended": np.asarray(decoded.whole),
        }

    @cached_property
    def _tokens(self) -> BatchTokens:
        """Return the counter of the batch's private tokens, less those of the texts already stored."""
        name = f"{self.label}/{self.number}"
        return self.paid.batch(name, tokens_spent=self.tokens_spent, runs_spent=self.runs_spent)

    @cached_property
    def _contexts(self) -> Contexts:
        return self.prompt.contexts(
            self.batch.rows,
            rows_at_once=self.prompt.model.rows_at_once(self.sampler.mechanism.batch_size),
            candidates=self.sampler.top_k or None,
            check=self.stop.check,
        )


class _Progress:
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


@dataclass(frozen=True)
class TokenSampler:
    """Samples one token at a time, with the numbers of the mechanism.

    Args:
        encode: converts text to tokens. Text that must follow, such as a record's next key, is added without sampling.
    """

    clip: Clip
    mechanism: PrivateTokens
    top_k: int  # candidates, 0 for the whole vocabulary
    encode: Callable[[str], Sequence[int]]
    public_temperature: float = 1.0

    @property
    def sums(self) -> TokenSums:
        """Return what is summed over the private rows."""
        return TokenSums(self.clip, self.mechanism.clip, self.mechanism.grid)

    @property
    def margin(self) -> float:
        """Return how far below the k-th largest public logit a candidate's may be: as far as one private row can raise
        it (InvisibleInk)."""
        return 2 * self.mechanism.clip / self.mechanism.batch_size if self.clip == "difference" else 0.0

    def text(
        self,
        contexts: Contexts,
        divisors: Sequence[int],
        tokens: BatchTokens,
        text: OpenText,
        check: Callable[[], None] = lambda: None,
        *,
        behind: Sequence[int] = (),
    ) -> Decoded:
        """Decode tokens until ``text`` has ended, or a private token is needed and none is left. Return the result.

        Args:
            contexts: the batch's rows; row 0 public. They are taken back to the prompt first.
            divisors: for each private row, the number of rows of its unit.
            check: called before each token; it raises where the run is being stopped.
            behind: public or released tokens that continue all rows before the text begins.
        """
        contexts.rewind()
        for token in behind:
            contexts.step(token)
        decoded, sums_of_rows, batch_size = Decoded(text), self.sums, self.mechanism.batch_size
        while text.ended is None:
            check()
            try:
                public = contexts.public_logits(whole=not self.top_k)
            except ModelError:
                if decoded.tokens:
                    break  # this too is a result of what was paid for, tests included: it is stored, not decoded again
                raise
            candidates = public_candidates(public, count=self.top_k or None, margin=self.margin)
            private = not tokens.can_test or tokens.is_private(self._distance(contexts, candidates, divisors))
            if private and tokens.left == 0:
                break
            if private:
                place = tokens.choose(sums_of_rows.over(contexts, candidates, divisors).utilities(batch_size))
            else:
                logits = candidates.logits.double().cpu().numpy()
                place = tokens.choose_public(logits, temperature=self.public_temperature)
            self._write(decoded, contexts, candidates.token(place), noisy=private)
            for token in self.encode(text.next):
                self._write(decoded, contexts, token, noisy=False)
        return decoded

    def _distance(self, contexts: Contexts, candidates: Candidates, divisors: Sequence[int]) -> int:
        grid, size = TokenTest.grid, self.mechanism.batch_size
        return distance_from_public(contexts, candidates, grid=grid, batch_size=size, divisors=divisors)

    def _write(self, decoded: Decoded, contexts: Contexts, token: int, *, noisy: bool) -> None:
        decoded.take(token, noisy=noisy)
        if decoded.text.ended is None:
            contexts.step(token)


@dataclass(frozen=True)
class Text:
    """A stored text: its label and batch, its tokens, which of them are private, whether it ended by itself, and the
    cells of its typed columns."""

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
    """Return the content of the Release: the texts, without unfinished ones unless these are wanted, and invalid
    records separately."""
    texts: list[str] = []
    kept: list[Text] = []
    apart: list[str] = []
    left_out: Counter[str] = Counter()
    for each in decoded:
        read = asked.read(each.label, each.tokens.tolist())
        if not each.ended and parameters.unfinished == "drop":
            longest = len(each.tokens) >= asked.labels[each.label].ending.most_tokens
            left_out[_TOO_LONG if longest else _OUT_OF_TOKENS] += 1
        elif not read.text:
            left_out["empty"] += 1
        elif read.fault is not None:
            left_out[str(read.fault)] += 1
            apart.append(read.text)
        else:
            kept.append(each)
            texts.append(read.text)
    return Released(
        _arrays(kept, len(columns_shown(tools))),
        public_inputs=asked.public_inputs(PurePath(parameters.json_schema or "").name),
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
    """Return what the tokens gave, from sealed values and public numbers only. ``batches``: of each label."""
    tokens = sum(len(text.tokens) for text in decoded)
    private = sum(int(text.private.sum()) for text in decoded)
    texts = tuple(int(number) for number in np.bincount([text.label for text in kept], minlength=len(batches)))
    why = ", ".join(f"{why} {number}" for why, number in sorted(left_out.items())) or "none"
    left = sum(batches) * mechanism.tokens - private
    odds = round(mechanism.log_odds, 4)
    entries = (
        Fact("texts", texts, "texts"),
        Fact("texts_left_out", why, "texts left out"),
        Fact("tokens", tokens, "tokens decoded"),
        Fact("private_tokens", private, "of which private"),
        Fact("log_odds_per_record", odds, "one record moves the log-odds of a private token by at most"),
        Fact("private_tokens_left", left, "private tokens paid for and not used (release --continue)"),
    )
    return Facts(entries, () if kept else (_warning(left_out),))


def _warning(left_out: Counter[str]) -> str:
    (why, _), *_ = left_out.most_common(1) or [("", 0)]
    if why == _TOO_LONG:
        return "No text ended by itself. Allow more tokens per text (--max-tokens), or look at the prompt."
    if why == _OUT_OF_TOKENS:
        return "No batch had enough private tokens for a text. Ask for more (--tokens-per-batch)."
    return "No text is usable. Look at the prompt (--document-type, --prompt), or take a larger model."
