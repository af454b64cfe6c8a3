"""What the noisy sums say: means, counts, how much of them is signal, and for which label a text speaks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.methods.additions.guide.guide import CONTRAST, Choice, Guide, choose, herd, noise_check
from understudy.methods.additions.guide.plan import COUNT_WEIGHT, VECTOR_WEIGHT

DIMENSION = 384


def unit(count: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).normal(size=(count, DIMENSION))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def around(direction: NDArray[np.float32], count: int, seed: int) -> NDArray[np.float32]:
    """Unit vectors near ``direction``."""
    vectors = direction + 0.5 * unit(count, seed)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def summed(texts: list[NDArray[np.float32]], noise: float = 0.0, seed: int = 0) -> Guide:
    """The guide of these labels' vectors."""
    rows = [[COUNT_WEIGHT * len(each), *(VECTOR_WEIGHT * each.sum(axis=0, dtype=np.float64))] for each in texts]
    sums = np.array(rows).reshape(len(texts), 1 + DIMENSION)
    return Guide(sums + np.random.default_rng(seed).normal(size=sums.shape) * noise, noise)


LABELS = [around(direction, count, 9 + count) for direction, count in zip(unit(3, 1), (40, 300, 7), strict=True)]


def test_without_noise_means_and_counts_are_exact() -> None:
    guide = summed(LABELS)
    assert np.allclose(guide.counts, [40, 300, 7])
    assert np.allclose(guide.reliability, 1)
    assert np.allclose(guide.means, [each.mean(axis=0, dtype=np.float64) for each in LABELS], atol=1e-6)
    assert np.allclose(guide.centre, guide.means.mean(axis=0))


def test_a_label_that_is_all_noise_says_nothing() -> None:
    many = [around(direction, 2_000, number) for number, direction in enumerate(unit(3, 1))]
    for seed in range(20):
        guide = summed([*many, many[0][:0]], noise=20.0, seed=seed)
        assert guide.reliability[3] < 0.1
        assert guide.reliability[:3].min() > 0.9
        mean, centre = guide.means[3], guide.centre
        assert np.linalg.norm(mean - centre) < 0.4 * np.linalg.norm(guide.means[:3] - centre, axis=1).min()


def test_labels_that_are_all_noise_all_say_nothing() -> None:
    for seed in range(20):
        guide = summed([each[:0] for each in LABELS] * 4, noise=20.0, seed=seed)
        assert guide.reliability.max() < 0.7
        assert np.isfinite(guide.means).all()
        assert level(guide) != "good"


def test_shrunk_means_are_nearer_to_the_true_ones_than_noisy_ones() -> None:
    true = np.array([each.mean(axis=0) for each in LABELS])
    shrunk, noisy = [], []
    for seed in range(50):
        guide = summed(LABELS, noise=8.0, seed=seed)
        raw = guide.sums[:, 1:] / (VECTOR_WEIGHT * guide.counts[:, None])
        shrunk.append(((guide.means - true) ** 2).sum())
        noisy.append(((raw - true) ** 2).sum())
    assert np.mean(shrunk) < 0.9 * np.mean(noisy)


def test_a_label_of_most_records_does_not_hide_that_the_others_differ() -> None:
    """Its mean is nearly the centre itself, and its distance from there is not that of the others."""
    first, second = unit(2, 1)
    for seed in range(20):
        guide = summed([around(first, 9_000, 1), around(second, 1_000, 2)], noise=20.0, seed=seed)
        assert guide.reliability[1] > 0.5
        assert guide.reliability[0] > 0.95


def test_no_count_is_below_what_noise_alone_reaches() -> None:
    sums = np.zeros((3, 1 + DIMENSION))
    sums[:, 0] = (-50, 0, 300)
    assert Guide(sums, 3.0).counts.tolist() == [20.0, 20.0, 1000.0]
    assert Guide(sums, 0.0).counts.tolist() == [1.0, 1.0, 1000.0]
    assert np.isfinite(Guide(sums, 0.0).means).all()


def test_scores_and_margins_are_those_of_the_nearest_mean() -> None:
    guide, texts = summed(LABELS, noise=0.5), unit(60, 5)
    labels = np.arange(60) % 3
    apart = ((texts[:, None].astype(np.float64) - guide.means[None]) ** 2).sum(axis=2)
    assert guide.scores(texts).argmax(axis=1).tolist() == apart.argmin(axis=1).tolist()
    for text, (label, margin) in enumerate(zip(labels, guide.margins(texts, labels), strict=True)):
        others = min(apart[text, other] for other in range(3) if other != label)
        assert margin == pytest.approx((others - apart[text, label]) / 2, abs=1e-5)


def test_of_one_label_every_margin_is_infinite() -> None:
    guide = summed(LABELS[:1], noise=1.0)
    assert np.isposinf(guide.margins(unit(4, 0), np.zeros(4, dtype=np.int64))).all()
    facts = noise_check(guide)
    assert [entry.name for entry in facts.entries] == ["guide_records"]
    assert facts.warnings == ()


def level(guide: Guide) -> str | None:
    found = noise_check(guide).verdict
    return None if found is None else found.level


def test_the_check_says_how_much_is_signal() -> None:
    facts = noise_check(summed(LABELS))
    assert [entry.value for entry in facts.entries] == [(40, 300, 7), (1.0, 1.0, 1.0)]
    assert (level(summed(LABELS)), level(summed(LABELS, noise=500.0))) == ("good", "noise")
    assert noise_check(summed(LABELS[:1])).verdict is None, "there is nothing to tell apart"


@pytest.mark.parametrize("number", [1e30, -1e30, 0.0])
@pytest.mark.parametrize("noise", [0.0, 1e-30, 5.0, 1e30])
def test_sums_of_any_size_give_finite_means(number: float, noise: float) -> None:
    """A Release may come from anybody."""
    sums = summed(LABELS).sums
    for changed in (np.full_like(sums, number), np.where(sums == sums[1, 3], number, sums)):
        guide = Guide(changed, noise)
        assert np.isfinite(guide.means).all()
        assert ((guide.reliability >= 0) & (guide.reliability <= 1)).all()


@pytest.mark.parametrize("few", [0, 5])
def test_labels_without_records_decide_nothing_about_the_texts_of_others(few: int) -> None:
    """Five of eight declared labels have no records, or few."""
    directions, labels = unit(8, 1), np.arange(300) % 3
    texts = directions[labels] / 8 + unit(300, 2)
    for seed in range(5):
        sizes = [400] * 3 + [few] * 5
        every = [around(direction, 400, 9)[:size] for direction, size in zip(directions, sizes, strict=True)]
        guide = summed(every, noise=3.0, seed=seed)
        three = Guide(guide.sums[:3], guide.noise_std)
        margins = three.margins(texts, labels)
        assert 0.6 < (margins > 0).mean() < 0.95
        assert guide.margins(texts, labels) == pytest.approx(margins)
        assert chosen(choose(guide, texts, labels, [9] * 3 + [0] * 5))[:3] == chosen(
            choose(three, texts, labels, [9] * 3)
        )
        assert level(guide) == level(three)
        choice = choose(guide, texts, np.arange(300) % 8, [5] * 8)
        assert [len(each) for each in choice.chosen] == [5] * 8
        assert choice.confirmed <= 3 * 38, "texts of the others are not said to match"


# -- choosing by a guide ----------------------------------------------------------------------------------------------


GUIDE = summed(LABELS)
DIRECTIONS = unit(3, 1)


def made(spoken: list[int], seed: int = 3) -> NDArray[np.float32]:
    """Texts that speak for these labels."""
    return np.concatenate([around(DIRECTIONS[label], 1, seed + number) for number, label in enumerate(spoken)])


def chosen(choice: Choice) -> list[list[int]]:
    return [sorted(each.tolist()) for each in choice.chosen]


def slow_herd(vectors: NDArray[np.float32], target: NDArray[np.float64], count: int) -> list[int]:
    """Each time the one that leaves the sum nearest to that many times the target, of vectors of length 1."""
    taken: list[int] = []
    while len(taken) < min(count, len(vectors)):
        said = vectors[taken].sum(axis=0, dtype=np.float64)
        apart = {
            index: np.linalg.norm((len(taken) + 1) * target - said - vectors[index])
            for index in range(len(vectors))
            if index not in taken
        }
        taken.append(min(apart, key=lambda index: apart[index]))
    return taken


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("there", "count"), [(30, 8), (30, 30), (5, 9), (0, 3), (4, 0)])
def test_herding_is_the_greedy_choice(there: int, count: int, seed: int) -> None:
    vectors, target = unit(there, seed), np.random.default_rng(seed).normal(size=DIMENSION)
    assert herd(vectors, target, count).tolist() == slow_herd(vectors, target, count)


def test_counts_are_respected_and_no_text_is_chosen_twice() -> None:
    spoken = [number % 3 for number in range(60)]
    labels = np.random.default_rng(4).integers(3, size=60)
    there = np.bincount(labels, minlength=3).tolist()
    for counts in ([5, 5, 5], [1, 0, 9], [0, 0, 0], [20, 3, 2]):
        choice = choose(GUIDE, made(spoken), labels, counts)
        assert [len(each) for each in choice.chosen] == [min(pair) for pair in zip(counts, there, strict=True)]
        every = np.concatenate(choice.chosen)
        assert len(set(every.tolist())) == len(every)
        assert all((labels[each] == label).all() for label, each in enumerate(choice.chosen))
        assert choice.confirmed == sum(spoken[text] == label for text, label in enumerate(labels))


def test_texts_that_speak_for_another_label_are_left_out_while_others_are_there() -> None:
    spoken = [0, 1, 0, 2, 0, 1, 1, 2]
    labels = np.array([0, 0, 0, 0, 0, 1, 1, 2])
    vectors = made(spoken)
    assert chosen(choose(GUIDE, vectors, labels, [3, 2, 1])) == [[0, 2, 4], [5, 6], [7]]
    margins = GUIDE.margins(vectors, labels)
    fourth = 1 if margins[1] > margins[3] else 3
    assert chosen(choose(GUIDE, vectors, labels, [4, 2, 1])) == [sorted([0, 2, 4, fourth]), [5, 6], [7]]


def test_fewer_texts_than_wanted_are_all_chosen() -> None:
    labels = np.array([0, 1, 1, 2])
    assert chosen(choose(GUIDE, made([0, 2, 1, 2]), labels, [9, 9, 9])) == [[0], [1, 2], [3]]


def test_what_tells_labels_apart_is_said_more_often_than_by_chance() -> None:
    labels = np.repeat([0, 1, 2], 60)
    vectors = unit(180, 3)
    choice = choose(GUIDE, vectors, labels, [10, 10, 10])
    middle = vectors.mean(axis=0, dtype=np.float64)
    for label, each in enumerate(choice.chosen):
        target = middle + CONTRAST * (GUIDE.means[label] - GUIDE.centre)
        mean, random = vectors[each].mean(axis=0), vectors[labels == label].mean(axis=0)
        assert np.linalg.norm(mean - target) < np.linalg.norm(random - target)


def test_without_labels_the_chosen_are_typical_and_their_mean_follows_the_private_one() -> None:
    guide = summed([np.concatenate([around(DIRECTIONS[0], 50, 1), around(DIRECTIONS[1], 50, 2)])])
    vectors = np.concatenate([around(DIRECTIONS[0], 20, 3), around(DIRECTIONS[1], 20, 4), around(DIRECTIONS[2], 40, 5)])
    labels = np.zeros(80, dtype=np.int64)
    (found,) = choose(guide, vectors, labels, [20]).chosen
    assert len(set(found.tolist())) == 20
    assert (found < 40).all()
    assert 7 <= (found < 20).sum() <= 13
    for count in (0, 1, 200):
        (found,) = choose(guide, vectors, labels, [count]).chosen
        assert len(set(found.tolist())) == len(found) == min(count, 80)
    assert chosen(choose(guide, unit(0, 0), labels[:0], [4])) == [[]]
