"""One record, or one owner, moves one batch's integers by what is charged, through the whole path from text to sums.

Broken twins must be caught by the very same measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from predictions import NAMES, method, prompts
from script_model import ScriptModel
from tiny_corpora import LABELS, OWNER, RECORD, Neighbours, Row, bounded

from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.methods.batched_prompts import Batch, Batches, sort_into_batches
from understudy.methods.private_prediction.release import TokenSampler
from understudy.methods.shared.decoding.prompting import LabelPrompt, build_prompts
from understudy.methods.shared.decoding.sums import Sums, public_candidates
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.shared_prefix import Contexts
from understudy.privacy.noise import InsecureSeededNoise
from understudy.privacy.tokens import PrivateTokens, TokenTest
from understudy.privacy.unit import Unit

BATCHES, SIZE, STEPS = 2, 3, (70, 101)
PAIRS = 8
CLIPS = ("difference", "recenter", "fixed")
ODD = (
    "",
    " ",
    "word " * 400,
    "<|im_end|><|endoftext|>",
    "T:\n\nT:",
    "\u0000\U0001f600\u2028",
    "as another",
    "as another",
)

# Private records and what makes rows of them into batches.
Sorted = Callable[[BoundedCorpus, Any], Batches]


def right_batches(corpus: BoundedCorpus, tokenise: Any) -> Batches:
    return sort_into_batches(corpus, tokenise, labels=LABELS, batches=BATCHES)


def batches_by_row_number(corpus: BoundedCorpus, tokenise: Any) -> Batches:
    """Broken: a record that comes first moves all others to the next batch."""

    class Numbered:
        def batches(self) -> Iterator[BoundedBatch]:
            before = 0
            for batch in corpus.batches():
                numbers = tuple(range(before, before + len(batch.texts)))
                before += len(numbers)
                yield replace(batch, hashes=lambda numbers=numbers: numbers)

    return sort_into_batches(Numbered(), tokenise, labels=LABELS, batches=BATCHES)  # type: ignore[arg-type]


def undivided_batches(corpus: BoundedCorpus, tokenise: Any) -> Batches:
    """Broken: each of an owner's rows counts in full."""
    made = right_batches(corpus, tokenise)
    for batch in (batch for of_label in made.of_label for batch in of_label):
        batch.shares = [1] * len(batch.shares)
    return made


def right_contexts(prompt: LabelPrompt, rows: Sequence[Sequence[int]], rows_at_once: int) -> Contexts:
    return prompt.contexts(rows, rows_at_once=rows_at_once)


def contexts_as_wide_as_the_longest(prompt: LabelPrompt, rows: Sequence[Sequence[int]], rows_at_once: int) -> Contexts:
    """Broken: all rows are padded to the longest text that happens to be there."""
    return right_contexts(replace(prompt, most=max(map(len, rows), default=1)), rows, rows_at_once)


def declared_size(batch: Batch) -> int:
    return SIZE


def actual_size(batch: Batch) -> int:
    """Broken: the mean over the texts that happen to be there."""
    return max(1, len(batch.rows))


@dataclass(frozen=True)
class Seen:
    """What one batch shows at the prompt and after some tokens: each row's logits, and what tokens are chosen by."""

    rows: list[tuple[tuple[int, ...], int]]
    logits: dict[tuple[tuple[int, ...] | None, int | None], list[torch.Tensor]]
    """By row (None: the public one) and step; of equal texts there are several."""
    utilities: list[np.ndarray[Any, Any]]


@dataclass(frozen=True)
class Path_:
    """From texts to sums; each part may be exchanged for a broken one."""

    model: CausalModel
    sort: Sorted = right_batches
    contexts: Callable[[LabelPrompt, Sequence[Sequence[int]], int], Contexts] = right_contexts
    size: Callable[[Batch], int] = declared_size

    def look(self, rows: Sequence[Row], unit: Unit = RECORD) -> dict[tuple[int, int], Seen]:
        asked = build_prompts(method(), prompts(), self.model, label_names=NAMES.names, record_columns=())
        corpus = bounded(rows, unit)
        sorted_ = self.sort(corpus, lambda text, label: asked.labels[label].private(text))
        return {
            (label, number): self._batch(asked.labels[label], batch)
            for label, of_label in enumerate(sorted_.of_label)
            for number, batch in enumerate(of_label)
        }

    def _batch(self, prompt: LabelPrompt, batch: Batch) -> Seen:
        rows_at_once = self.model.rows_at_once(SIZE)
        contexts = self.contexts(prompt, batch.rows, rows_at_once)
        rows = [tuple(row) for row in batch.rows]
        seen = Seen(list(zip(rows, batch.shares, strict=True)), {}, [])
        for step in (None, *STEPS):
            if step is not None:
                contexts.step(step)
            blocks = [(block.logits[: block.real]) for block in contexts.blocks()]
            for row, logits in zip([None, *rows], torch.cat(blocks), strict=True):
                seen.logits.setdefault((row, step), []).append(logits.clone())
            for sampler in samplers(self.model):
                candidates = public_candidates(contexts.public_logits(), count=40, margin=sampler.margin)
                sums: Sums = sampler.sums.over(contexts, candidates, batch.shares)
                seen.utilities.append(sums.utilities(self.size(batch)))
        return seen


def samplers(model: CausalModel) -> list[TokenSampler]:
    made = []
    for clip, clip_range in zip(CLIPS, (0.7, 6.0, 6.0), strict=True):
        mechanism = PrivateTokens(clip_range, SIZE, 1.0, 12)
        made.append(TokenSampler(clip, mechanism, 40, model.encode))
    return made


def neighbours(unit: Unit = RECORD, *, pairs: int = PAIRS, seed: int = 0) -> Iterator[Neighbours]:
    """Any rows, and the same with a record, or an owner of up to seven, put in anywhere."""
    random = np.random.default_rng(seed)

    def text(number: int) -> str:
        return ODD[random.integers(len(ODD))] if random.integers(3) == 0 else f"text {number}" * random.integers(1, 4)

    for pair in range(pairs):
        rows = [Row(text(each), int(random.integers(LABELS)), f"owner {each % 3}") for each in range(pair % 7 * 2)]
        added = 1 if unit.kind == "record" else int(random.integers(1, 8))
        larger = list(rows)
        for number in range(added):
            own = ODD[pair % len(ODD)] if unit.kind == "record" else f"mine {number}"
            place = 0 if pair % 2 == 0 else int(random.integers(len(larger) + 1))
            larger.insert(place, Row(own, int(random.integers(LABELS)), "zoe"))
        yield Neighbours(rows, larger)


def moved(one: Seen, two: Seen) -> float:
    """How far utilities moved, as a share of what is charged."""
    moves = (int(np.abs(a - b).max()) for a, b in zip(one.utilities, two.utilities, strict=True))
    return max(moves) / PrivateTokens.grid


Pair = tuple[dict[tuple[int, int], Seen], dict[tuple[int, int], Seen]]


def looks(path: Path_, *, pairs: int = PAIRS) -> Iterator[Pair]:
    """What is seen of neighbours, one pair after the other."""
    return ((path.look(pair.smaller), path.look(pair.larger)) for pair in neighbours(pairs=pairs))


def faults(pairs: Iterable[Pair]) -> Iterator[str]:
    """What one record does that it must not."""
    for smaller, larger in pairs:
        changed = [place for place in smaller if sorted(smaller[place].rows) != sorted(larger[place].rows)]
        if len(changed) != 1:
            yield "batches"
        for place, before in smaller.items():
            after = larger[place]
            if moved(before, after) > (1 if place in changed else 0):
                yield "sums"
            for row in before.logits.keys() & after.logits.keys():
                first, *others = [*before.logits[row], *after.logits[row]]
                if not all(torch.equal(first, other) for other in others):
                    yield "other rows"


@pytest.fixture(scope="module")
def model(llama: Path) -> CausalModel:
    return load_causal(f"hf:{llama}", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def right(model: CausalModel) -> list[Pair]:
    return list(looks(Path_(model)))


def test_one_record_moves_one_batch_by_what_is_charged_and_no_other_row_by_a_bit(right: list[Pair]) -> None:
    assert list(faults(right)) == []


def test_one_record_moves_its_batch_by_what_is_charged_in_the_processors_own_precision(llama: Path) -> None:
    model = load_causal(f"hf:{llama}", device="cpu", dtype="bfloat16")
    assert list(faults(looks(Path_(model), pairs=5))) == []


def test_a_record_can_move_its_batch_by_all_that_is_charged(right: list[Pair]) -> None:
    assert max(moved(before[place], after[place]) for before, after in right for place in before) == 1


def test_batches_by_row_number_are_caught(model: CausalModel) -> None:
    assert "batches" in faults(looks(Path_(model, sort=batches_by_row_number)))


def test_rows_padded_to_the_longest_that_is_there_are_caught(model: CausalModel) -> None:
    twin = Path_(model, contexts=contexts_as_wide_as_the_longest)
    assert any(fault in ("other rows", "sums") for fault in faults(looks(twin)))


def test_a_divisor_that_counts_the_rows_that_are_there_is_caught(model: CausalModel) -> None:
    assert "sums" in faults(looks(Path_(model, size=actual_size)))


def joint(path: Path_, *, pairs: int = PAIRS) -> Iterator[tuple[float, float]]:
    """For each pair that differs by an owner: the sums over batches of the shares moved, and of their squares."""
    for pair in neighbours(OWNER, pairs=pairs, seed=1):
        smaller, larger = path.look(pair.smaller, OWNER), path.look(pair.larger, OWNER)
        shares = [moved(smaller[place], larger[place]) for place in smaller]
        yield sum(shares), sum(share**2 for share in shares)


def test_an_owners_records_in_several_batches_together_move_no_more_than_one_record(model: CausalModel) -> None:
    shares, squares = zip(*joint(Path_(model)), strict=True)
    assert 0.9 < max(shares) <= 1
    assert max(squares) <= 1, "what all batches cost, of what is charged"


def test_an_owners_rows_that_count_in_full_are_caught(model: CausalModel) -> None:
    assert any(shares > 1 and squares > 1 for shares, squares in joint(Path_(model, sort=undivided_batches)))


def test_an_owners_rows_are_the_declared_shares_whatever_batches_they_are_in() -> None:
    rows = [Row(f"text {number}", number % LABELS, "zoe") for number in range(9)]
    made = right_batches(bounded(rows, OWNER), lambda text, label: (list(text.encode()), False))
    shares = [share for of_label in made.of_label for batch in of_label for share in batch.shares]
    assert shares == [3, 3, 3]
    assert sum(PrivateTokens.grid // share for share in shares) <= PrivateTokens.grid
    numbers = {number for of_label in made.of_label for number, batch in enumerate(of_label) if batch.rows}
    assert len(numbers) == 1, "an owner's batch has the same number in each label"


def test_a_copy_of_a_text_is_a_row_of_its_own_and_cut_texts_are_counted() -> None:
    rows = [Row("as another", 1), Row("long" * 9, 0), Row("as another", 1)]
    made = right_batches(bounded(rows), lambda text, label: (list(text.encode())[:16], len(text) > 16))
    assert sum(len(batch.rows) for batch in made.of_label[1]) == 2
    assert made.cut == 1
    assert "another" not in repr(made) + repr(made.of_label[1][0])


# -- what is drawn follows the law that is charged --------------------------------------------------------------------


A, B = ord("a"), ord("b")
SIZE, CLIP, TEMPERATURE = 2, 0.5, 0.25
SHIFT = 2 * CLIP / (SIZE * TEMPERATURE)
DRAWS = 200
# Three standard deviations: the noise has a seed.
WITHIN = 3 * math.sqrt(2 / (DRAWS * 0.1))


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
    prompt, paid = asked.labels[0], mechanism.open(InsecureSeededNoise(texts))
    contexts = prompt.contexts([list(b"text")] * texts, rows_at_once=SIZE + 1)
    sampler = TokenSampler("difference", mechanism, 2, model.encode)
    found = []
    for _ in range(draws):
        decoded = sampler.text(contexts, [1] * texts, paid.batch(), prompt.ending.open(prompt.model))
        found.append((decoded.tokens[0], decoded.noisy[0]))
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
def test_a_token_is_private_where_the_batch_is_further_than_the_threshold(texts: int, distance: float) -> None:
    """(0.5, 0.5) is public, a text says (1, 0), and the divisor is 2 whatever the batch holds."""
    for threshold in (0.3, 0.7, 1.3, 1.9):
        mechanism = PrivateTokens(CLIP, SIZE, TEMPERATURE, 1, TokenTest(threshold, 1e-4))
        assert {private for _, private in first_tokens(mechanism, texts, 5)} == {distance > threshold}
