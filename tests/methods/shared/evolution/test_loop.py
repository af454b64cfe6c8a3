"""The evolution loop: who survives, what is stored, and that it always runs to the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scripted import EMPTY, ScriptedChat, embed, make_api

from understudy.ledger.store import RunStore
from understudy.methods.shared.evolution.loop import KEPT, NO_PARENT, Population, Round, evolve, select
from understudy.methods.shared.evolution.parameters import (
    EvolutionParameters,
    candidates_per_round,
    evolution_calls,
    population_sizes,
    share_out,
)
from understudy.methods.shared.evolution.variation import TextAPI
from understudy.models.types import Completion

Arrays = Mapping[str, NDArray[Any]]


def by_index(_number: int, vectors: NDArray[np.float32], _labels: NDArray[np.int32]) -> NDArray[np.float64]:
    """Later candidates have more votes."""
    return np.arange(len(vectors), dtype=np.float64)


def run(api: TextAPI, weights: list[float] | None = None, **options: Any) -> list[Round]:
    sizes = population_sizes(api.parameters, weights or [1.0] * len(api.keywords))
    return list(evolve(api, sizes, **{"embed": embed, "vote": by_index, **options}))


def test_a_round_holds_the_chosen_texts_and_variations_of_each() -> None:
    first, second, third = run(make_api(ScriptedChat(), rounds=3, population=2, variations=3))
    assert len(first.population) == 2 * 2 * 3  # labels, population, variations
    assert set(first.population.parents.tolist()) == {NO_PARENT}
    assert first.chosen_labels.tolist() == [0, 0, 1, 1]
    assert second.population.texts[:4] == first.chosen_texts
    assert second.population.prompts[:4] == (KEPT,) * 4
    assert second.population.parents.tolist() == first.chosen_numbers.tolist() * 3
    assert second.population.first == 12
    assert third.population.first == 24
    assert len(third.chosen_texts) == 4


def test_the_best_texts_survive_and_their_votes_are_seen() -> None:
    def vote(_number: int, vectors: NDArray[np.float32], _labels: NDArray[np.int32]) -> NDArray[np.float64]:
        return np.round(vectors @ embed(["aaaa"])[0], 5).astype(np.float64)

    rounds = run(make_api(ScriptedChat(), rounds=6, population=4, variations=4), vote=vote)
    best = [max(each.votes) for each in rounds]
    assert best == sorted(best)
    assert best[-1] > best[0]


def test_the_populations_sizes_follow_the_labels_weights() -> None:
    api = make_api(ScriptedChat(), rounds=3, population=4, variations=2)
    assert population_sizes(api.parameters, [3.0, 1.0]) == [6, 2]
    assert [np.bincount(each.chosen_labels).tolist() for each in run(api, [3.0, 1.0])] == [[6, 2]] * 3


def test_the_forecast_of_calls_and_candidates_is_what_is_asked() -> None:
    chat = ScriptedChat()
    api = make_api(chat, rounds=3, population=3, variations=3)
    rounds = run(api)
    assert [len(each.population) for each in rounds] == [candidates_per_round(api.parameters, 2)] * 3
    assert len(chat.asked) == evolution_calls(api.parameters, population_sizes(api.parameters, [1.0, 1.0]))


def test_a_population_is_stored_before_it_is_voted_on() -> None:
    order: list[str] = []
    stored: dict[str, Arrays] = {}

    def keep(name: str, make: Callable[[], Arrays]) -> Arrays:
        order.append(name)
        return stored.setdefault(name, make())

    def vote(number: int, vectors: NDArray[np.float32], labels: NDArray[np.int32]) -> NDArray[np.float64]:
        order.append(f"vote {number}")
        return by_index(number, vectors, labels)

    rounds = run(make_api(ScriptedChat(), rounds=2, population=2), keep=keep, vote=vote)
    assert order == ["population-0", "vote 0", "population-1", "vote 1"]
    assert [Population.from_arrays(stored[f"population-{n}"]).texts for n in (0, 1)] == [
        each.population.texts for each in rounds
    ]


def test_a_resumed_run_asks_only_for_what_is_not_stored_and_ends_alike() -> None:
    stored: dict[str, Arrays] = {}

    def keep(name: str, make: Callable[[], Arrays]) -> Arrays:
        if name not in stored:
            stored[name] = make()
        return stored[name]

    whole = run(make_api(ScriptedChat(), rounds=3, population=2, variations=3), keep=keep)
    del stored["population-2"]
    chat = ScriptedChat()
    resumed = run(make_api(chat, rounds=3, population=2, variations=3), keep=keep)
    assert len(chat.asked) == 4 * 2
    assert resumed[-1].population.texts == whole[-1].population.texts
    assert resumed[-1].chosen.tolist() == whole[-1].chosen.tolist()


def shapes(rounds: list[Round]) -> list[tuple[Any, ...]]:
    return [
        (each.votes.shape == (len(each.population),), each.votes.dtype, each.chosen.dtype, each.population.failed.shape)
        for each in rounds
    ]


EXPECTED = (True, np.dtype(np.float64), np.dtype(np.int64), (2,))


@pytest.mark.parametrize("selection", ["rank", "proportional"])
@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(lambda _request: "", id="all answers are blank"),
        pytest.param(lambda _request: EMPTY, id="all answers are empty"),
        pytest.param(lambda _request: "The same.", id="all texts are alike"),
        pytest.param(lambda request: "Bar." if "bars" in request.messages[-1].content else "", id="one label is empty"),
        pytest.param(lambda request: "Odd." if request.sample % 5 == 0 else "", id="few candidates"),
    ],
)
def test_every_round_has_the_same_shape_for_any_model(reply: Callable[[Any], str | Completion], selection: str) -> None:
    api = make_api(ScriptedChat(reply), rounds=3, population=4, variations=3, selection=selection)
    rounds = run(api)
    assert shapes(rounds) == [EXPECTED] * 3
    assert all((each.chosen_labels == np.sort(each.chosen_labels)).all() for each in rounds)


def test_a_label_whose_texts_all_failed_gets_new_ones_in_the_next_round() -> None:
    left = [12]

    def reply(_request: Any) -> str | Completion:
        left[0] -= 1
        return EMPTY if left[0] >= 0 else "Fine."

    first, second = run(make_api(ScriptedChat(reply), rounds=2, population=2, variations=3))
    assert first.population.failed.tolist() == [6, 6]
    assert len(first.chosen) == 0
    assert len(second.population) == 12
    assert len(second.chosen) == 4


def test_texts_without_labels_are_one_population() -> None:
    rounds = run(make_api(ScriptedChat(), labels=(), rounds=2, population=3, variations=2))
    assert [len(each.chosen) for each in rounds] == [3, 3]
    assert rounds[0].population.failed.tolist() == [0]


# -- which candidates are chosen, and how a population is shared out among labels -------------------------------------


LABELS = np.array([0, 1, 0, 1, 0], dtype=np.int32)


def choose(votes: list[float], sizes: list[int], *, labels: Any = LABELS, seed: int = 0, **more: Any) -> list[int]:
    generator, parameters = np.random.default_rng(seed), EvolutionParameters(**more)
    found = select(np.array(votes, dtype=np.float64), labels, sizes=sizes, parameters=parameters, generator=generator)
    return found.tolist()


def test_rank_takes_the_most_votes_of_each_label_in_order() -> None:
    assert choose([1, 5, 3, 6, 2], [2, 1]) == [2, 4, 3]


def test_ties_and_votes_below_the_threshold_go_by_index() -> None:
    assert choose([2, 0, 2, 0, 2], [2, 2]) == [0, 2, 1, 3]
    assert choose([-3, 0, -1, 0, 4], [3, 0]) == [4, 0, 2]
    assert choose([5, 0, 7, 0, 9], [2, 0], threshold=8.0) == [4, 0]


def test_rank_takes_all_where_there_are_fewer_than_wanted_and_none_of_an_empty_label() -> None:
    assert choose([1, 5, 3, 6, 2], [9, 9, 9]) == [2, 4, 0, 3, 1]
    assert choose([], [3, 3], labels=np.empty(0, dtype=np.int32)) == []


def test_proportional_draws_in_proportion_to_what_is_above_the_threshold() -> None:
    labels = np.zeros(3, dtype=np.int32)
    found = choose([1, 3, 5], [30_000], labels=labels, selection="proportional", threshold=1.0)
    assert len(found) == 30_000
    shares = np.bincount(found, minlength=3) / len(found)
    assert shares[0] == 0
    assert shares[1] == pytest.approx(1 / 3, abs=0.02)
    assert found == sorted(found, reverse=True)  # best first


def test_proportional_without_any_vote_is_uniform_and_repeats_where_there_are_too_few() -> None:
    found = choose([-1, -1, -2, -1, -3], [30_000, 4], selection="proportional")
    assert np.bincount(found[:30_000], minlength=5)[[0, 2, 4]] / 30_000 == pytest.approx([1 / 3] * 3, abs=0.02)
    assert set(found[30_000:]) <= {1, 3}
    assert len(found) == 30_004


@pytest.mark.parametrize(
    ("total", "weights", "shares"),
    [
        (100, [90, 10], [90, 10]),
        (10, [6, 3, 0], [6, 3, 1]),
        (7, [-1, -2], [4, 3]),
        (2, [5, 1, 1], [1, 1, 1]),
        (4, [1000, 0, 0, -5], [1, 1, 1, 1]),
    ],
)
def test_a_population_is_shared_out_by_largest_remainder_and_no_label_goes_empty(
    total: int, weights: list[float], shares: list[int]
) -> None:
    assert share_out(total, weights) == shares


def test_shares_always_add_up() -> None:
    generator = np.random.default_rng(5)
    for _ in range(200):
        weights = generator.normal(1, 2, size=int(generator.integers(1, 12)))
        total = int(generator.integers(1, 400))
        shares = share_out(total, list(weights))
        assert min(shares) >= 1
        assert sum(shares) == max(total, len(weights))


# -- populations: what a run store keeps of them, and where texts come from -------------------------------------------


TEXTS = ("plain", "größer 東京 \U0001f600", "lone \ud800 half \udfff", "zero\x00byte\r\n\u2028", "", "é e\u0301")


def make(texts: tuple[str, ...], parents: list[int], *, first: int = 0, labels: int = 2) -> Population:
    return Population(
        texts,
        np.arange(len(texts), dtype=np.int32) % labels,
        np.array(parents, dtype=np.int64),
        tuple(f"random|keyword:{text}" for text in texts),
        first,
        np.arange(labels, dtype=np.int64),
    )


@pytest.mark.parametrize("texts", [TEXTS, (), ("",)])
def test_a_population_comes_back_from_the_run_store_exactly(tmp_path: Path, texts: tuple[str, ...]) -> None:
    made = make(texts, [NO_PARENT] * len(texts), first=12345678901)
    with RunStore.open(tmp_path / "private", noise="system") as store:
        kept = store.keep_once("population-3", made.to_arrays)
    found = Population.from_arrays(kept)
    assert found.texts == made.texts
    assert found.prompts == made.prompts
    assert found.first == made.first
    for name in ("labels", "parents", "failed"):
        expected = getattr(made, name)
        assert getattr(found, name).dtype == expected.dtype
        assert getattr(found, name).tolist() == expected.tolist()


def test_a_rounds_chosen_texts_have_their_labels_and_numbers() -> None:
    each = Round(make(("a", "b", "c"), [-1, -1, -1], first=10), np.zeros(3), np.array([2, 0, 2]))
    assert each.chosen_texts == ("c", "a", "c")
    assert each.chosen_labels.tolist() == [0, 0, 0]
    assert each.chosen_numbers.tolist() == [12, 10, 12]
