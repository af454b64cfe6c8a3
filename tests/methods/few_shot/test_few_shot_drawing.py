"""How far one record can move what the subsets say, and the broken dealing that lets it move them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from echo_model import EchoModel
from few_shots import BUDGET, method
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.methods.few_shot import release as releasing
from understudy.methods.few_shot.plan import FewShotParameters, mechanism_of
from understudy.methods.few_shot.release import TokenSampler, deal
from understudy.methods.shared.decoding.ending import Ending
from understudy.methods.shared.decoding.prompting import LabelPrompts, PromptTokens
from understudy.methods.shared.decoding.sums import public_candidates
from understudy.models.causal import CausalModel
from understudy.models.machine import worker_pool
from understudy.privacy.subsampled import Sample

Deal = Callable[..., list[NDArray[np.int64]]]
PROMPT = PromptTokens(prefix=(256, *b"Notes.\n"), before=tuple(b"T:"), lead="", after=tuple(b"\n"), suffix=tuple(b"T:"))
SUBSETS, SHOWN = 4, 2


def sampler(
    model: Any, *, noise: str = "gaussian", prompt: PromptTokens = PROMPT, candidates: int = 30
) -> TokenSampler:
    chosen = method(subsets=SUBSETS, noise=noise, candidates=candidates)
    ending: Any = Ending(stop=(), opening="", most_tokens=6)
    label: Any = SimpleNamespace(model=model, tokens=prompt, ending=ending, most=12)
    return TokenSampler(chosen, mechanism_of(chosen, BUDGET), label)


def chunks_of_the_sample(sample: Sample, *, subsets: int, most: int) -> list[NDArray[np.int64]]:
    """Broken: the ordered sample, dealt out in equal parts."""
    return [part[:most] for part in np.array_split(np.flatnonzero(sample.included), subsets)]


def coins(generator: np.random.Generator, count: int) -> Sample:
    included, subset = generator.random(count) < 0.5, generator.integers(SUBSETS, size=count)
    return Sample(included, subset, generator.integers(2**62, size=count))


def neighbours(seed: int, deal: Deal) -> tuple[list[str], list[list[list[str]]]]:
    """Texts, and what the subsets show of them: without the record in some place, and with it, drawn; same coins."""
    generator = np.random.default_rng(seed)
    count = int(generator.integers(0, 14))
    place = int(generator.integers(count + 1))
    sample = coins(generator, count + 1)
    sample.included[place] = True
    texts = [f"t{generator.integers(1000)}" for _ in range(count + 1)]
    without = Sample(*(np.delete(each, place) for each in vars(sample).values()))
    shown = [
        [[some[number] for number in numbers] for numbers in deal(held, subsets=SUBSETS, most=SHOWN)]
        for some, held in (([*texts[:place], *texts[place + 1 :]], without), (texts, sample))
    ]
    return texts, shown


def sums(found: TokenSampler, shown: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    texts = [[np.array(list(text.encode()), dtype=np.int32) for text in some] for some in shown]
    contexts = found.contexts(texts, [])
    return found.sums(contexts, public_candidates(contexts.public_logits(), count=found.parameters.candidates))


def test_a_subset_shows_its_own_drawn_records_and_no_more_than_it_may() -> None:
    generator = np.random.default_rng(0)
    for count in (0, 1, 3, 40):
        sample = coins(generator, count)
        dealt = deal(sample, subsets=SUBSETS, most=SHOWN)
        assert len(dealt) == SUBSETS
        for number, records in enumerate(dealt):
            members = np.flatnonzero(sample.included & (sample.subset == number))
            assert set(records.tolist()) <= set(members.tolist())
            assert len(records) == min(SHOWN, len(members))
            assert all(sample.priority[records[0]] <= sample.priority[members]) if len(members) else True


def test_every_record_of_a_full_subset_is_shown_alike_often() -> None:
    generator = np.random.default_rng(1)
    times = np.zeros(6)
    for _ in range(3000):
        priority = generator.integers(2**62, size=6)
        everyone, together = np.ones(6, dtype=np.bool_), np.zeros(6, dtype=np.int64)
        times[deal(Sample(everyone, together, priority), subsets=1, most=2)[0]] += 1
    assert np.all(np.abs(times - 1000) < 150)  # std 26


def test_a_record_changes_one_subset_at_most() -> None:
    for seed in range(300):
        _, (without, with_it) = neighbours(seed, deal)
        assert sum(a != b for a, b in zip(without, with_it, strict=True)) <= 1


def test_dealing_an_ordered_sample_out_in_chunks_is_caught() -> None:
    worst = 0
    for seed in range(300):
        _, (without, with_it) = neighbours(seed, chunks_of_the_sample)
        worst = max(worst, sum(a != b for a, b in zip(without, with_it, strict=True)))
    assert worst == SUBSETS


def largest_movement(found: TokenSampler, dealing: Deal) -> tuple[int, int]:
    """Over many neighbours: the largest squared L2 and the largest L-infinity by which the sums move."""
    squared, largest = 0, 0
    for seed in range(60):
        _, (without, with_it) = neighbours(seed, dealing)
        steps = [int(step) for step in sums(found, with_it) - sums(found, without)]
        squared = max(squared, sum(step * step for step in steps))
        largest = max(largest, *map(abs, steps))
    return squared, largest


def test_a_record_moves_the_summed_probabilities_by_root_two_grids_at_most() -> None:
    found = sampler(EchoModel())
    grid = found.mechanism.grid
    squared, _ = largest_movement(found, deal)
    assert squared <= 2 * grid**2
    assert squared > 1.99 * grid**2, "the stand-in lets a record do its worst"


def test_a_record_moves_the_votes_by_one_at_most() -> None:
    squared, largest = largest_movement(sampler(EchoModel(), noise="votes"), deal)
    assert (squared, largest) == (2, 1)


@pytest.mark.parametrize("noise", ["gaussian", "votes"])
def test_sums_over_chunks_of_an_ordered_sample_move_too_far(noise: str) -> None:
    found = sampler(EchoModel(), noise=noise)
    unit = found.mechanism.grid if noise == "gaussian" else 1
    squared, largest = largest_movement(found, chunks_of_the_sample)
    assert squared > 2 * unit**2 * 1.5
    assert noise == "gaussian" or largest > 1


@pytest.fixture(scope="module")
def model(llama: Path) -> CausalModel:
    return CausalModel(llama, name="tiny", device="cpu", dtype="float32")


def small_prompt(model: CausalModel) -> PromptTokens:
    before, after = model.encode("T:"), model.encode("\n")
    return PromptTokens(
        prefix=tuple(model.encode("Notes.\n")), before=tuple(before), lead="", after=tuple(after), suffix=tuple(before)
    )


def in_a_worker(test: Callable[[], None]) -> None:
    """As a release does: several cores that share a block out give rows other logits in other places."""
    with worker_pool("cpu", most=1) as pool:
        pool.submit(test).result()


def test_a_real_models_sums_move_by_one_row_bit_for_bit(model: CausalModel) -> None:
    in_a_worker(lambda: _moves_by_one_row(model))


def _moves_by_one_row(model: CausalModel) -> None:
    found = sampler(model, prompt=small_prompt(model))
    grid = found.mechanism.grid
    for seed in range(12):
        _, (without, with_it) = neighbours(seed, deal)
        changed = [number for number, pair in enumerate(zip(without, with_it, strict=True)) if pair[0] != pair[1]]
        alone = [[[] for _ in range(SUBSETS)] for _ in range(2)]
        for number in changed:  # the same rows beside empty subsets
            alone[0][number], alone[1][number] = without[number], with_it[number]
        moved = sums(found, with_it) - sums(found, without)
        np.testing.assert_array_equal(moved, sums(found, alone[1]) - sums(found, alone[0]))
        assert sum(int(step) ** 2 for step in moved) <= 2 * grid**2


def test_an_empty_subset_says_what_the_model_says_without_private_text(model: CausalModel) -> None:
    in_a_worker(lambda: _says_what_is_public(model))


def _says_what_is_public(model: CausalModel) -> None:
    found = sampler(model, prompt=small_prompt(model))
    contexts = found.contexts([[]] * SUBSETS, [65])
    candidates = public_candidates(contexts.public_logits(), count=found.parameters.candidates)
    public = np.floor(candidates.logits.double().softmax(0).numpy() * found.mechanism.grid)
    summed = found.sums(contexts, candidates)
    assert np.all(summed % SUBSETS == 0), "all subsets say the same, bit for bit"
    np.testing.assert_allclose(summed // SUBSETS, public, atol=4)  # by float rounding in another shape


def test_a_prompt_of_private_texts_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = PromptTokens(prefix=(), before=(), lead="", after=(10,), suffix=())
    label = SimpleNamespace(tokens=bare)
    monkeypatch.setattr(releasing, "label_prompts", lambda *_: LabelPrompts((label,)))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="empty"):
        releasing.exemplar_prompts(FewShotParameters(), None)  # type: ignore[arg-type]


def test_a_prompt_without_a_cue_has_no_empty_row() -> None:
    found = sampler(EchoModel(), prompt=PromptTokens(prefix=(10,), before=(), lead="", after=(10,), suffix=()))
    assert len(found.contexts([[]] * SUBSETS, [])) == SUBSETS + 1
