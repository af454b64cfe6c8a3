"""The attacks: planted canaries come first in what copies them, and nothing comes first in what does not."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.audit.canaries import Canaries, make_canaries
from understudy.audit.result import area_under_curve, guess_rules, judge, true_positive_rate
from understudy.audit.running import (
    EMBEDDING,
    NGRAM,
    RELEASE,
    TERMS,
    NGramModel,
    attacks_of,
    embedding_scores,
    groups_of,
    ngram_scores,
    score,
    term_scores,
)
from understudy.base.errors import ConfigError
from understudy.base.labels import LabelSet
from understudy.methods.dp_kps.plan import DPKPSParameters, make_plan
from understudy.methods.public import PublicFacts
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit

RARE = [f"zq{a}{b}{c}" for a in "abcdef" for b in "abcdefghij" for c in "abcdefghij"]


class Letters:
    """An embedder without a model: a word is a random direction, a text the sum of its words."""

    model_id, fingerprint, local = "letters", "0" * 64, True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        def word(text: str) -> NDArray[np.float64]:
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
            return np.random.default_rng(seed).standard_normal(64)

        vectors = np.array([np.sum([word(each) for each in text.split()], axis=0) for text in texts])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def canaries() -> Canaries:
    return make_canaries(100, terms=RARE, taken=frozenset(), per_canary=4, prefixes=[("The patient said", None)])


def copies(canaries: Canaries) -> list[str]:
    """A run that repeats its data."""
    return [canary.text for canary in canaries if canary.planted] + ["The patient slept well"] * 40


@pytest.mark.parametrize("attack", [TERMS, NGRAM, EMBEDDING])
def test_planted_canaries_of_a_copy_score_above_all_others(canaries: Canaries, attack: str) -> None:
    release: Any = None
    found = score(attack, canaries, texts=copies(canaries), release=release, embedder=Letters())
    assert found[canaries.planted].min() > found[~canaries.planted].max()


@pytest.mark.parametrize("attack", [TERMS, NGRAM, EMBEDDING])
def test_texts_without_a_canary_tell_no_coin(canaries: Canaries, attack: str) -> None:
    release: Any = None
    found = score(attack, canaries, texts=["The patient slept well"] * 40, release=release, embedder=Letters())
    assert area_under_curve(found, canaries.planted) == pytest.approx(0.5, abs=0.33)  # but for a chance of 1e-8
    again = score(attack, canaries, texts=["The patient slept well"] * 40, release=release, embedder=Letters())
    assert np.array_equal(found, again)


def test_no_texts_at_all_tell_nothing(canaries: Canaries) -> None:
    assert not term_scores(canaries, []).any()
    assert not embedding_scores(canaries, [], Letters()).any()
    assert np.allclose(ngram_scores(canaries, []), 0)


def test_terms_are_counted_wherever_they_stand(canaries: Canaries) -> None:
    first, second = canaries.all[:2]
    texts = [f"{first.terms[0]}, {second.terms[1]}, {first.terms[2].upper()}", f"see {first.terms[0]}."]
    assert term_scores(canaries, texts).tolist() == [3, 1, *[0] * 98]


def release_of(canaries: Canaries, counts: dict[str, float], scores: dict[str, list[float]]) -> Any:
    """A dp-kps Release of two labels that holds these terms."""
    parameters = DPKPSParameters(top_terms=len(counts), length=1)
    labels = LabelSet(("a", "b"))
    plan = make_plan(parameters, Budget(2, "1e-6"), PublicFacts(Unit(), labels), vocabulary_size=1000)
    return SimpleNamespace(
        method="dp-kps",
        parameters={**parameters.model_dump(), "seed": 0},
        statement=SimpleNamespace(charges=plan.charges),
        schema=SimpleNamespace(labels=labels.names, label_set=labels),
        terms=list(counts),
        arrays={"counts": np.array(list(counts.values())), "density": np.array(list(scores.values())).T},
    )


def test_the_release_is_read_under_the_canarys_own_label() -> None:
    made = make_canaries(4, terms=RARE, taken=frozenset(), per_canary=1, prefixes=[("", "a"), ("", "b")])
    terms = [canary.terms[0] for canary in made]
    release = release_of(
        made, dict.fromkeys(terms, 1.0), {terms[0]: [9, 0], terms[1]: [9, 0], terms[2]: [0, 9], terms[3]: [0, 9]}
    )
    found = score(RELEASE, made, texts=[], release=release, embedder=None)
    assert found[0] == found[3] > found[1] == found[2]


def test_terms_that_the_release_lacks_count_as_the_least_that_it_has() -> None:
    made = make_canaries(3, terms=RARE, taken=frozenset(), per_canary=1, prefixes=[("", "a")])
    terms = [canary.terms[0] for canary in made]
    release = release_of(made, {terms[0]: 5.0, terms[1]: 2.0}, {terms[0]: [0, 0], terms[1]: [0, 0]})
    found = score(RELEASE, made, texts=[], release=release, embedder=None)
    assert found[0] > found[1] == found[2]


def test_attacks_are_those_that_fit_the_method() -> None:
    assert attacks_of("dp-kps", ()) == (TERMS, NGRAM, EMBEDDING, RELEASE)
    assert attacks_of("few-shot", ()) == (TERMS, NGRAM, EMBEDDING)
    assert attacks_of("few-shot", [NGRAM, NGRAM]) == (NGRAM,)
    for method, attack in (("few-shot", RELEASE), ("dp-kps", "guess")):
        with pytest.raises(ConfigError, match="no attack"):
            attacks_of(method, [attack])


WORDS = ("a", "b", "c", "d")


def test_the_chances_of_all_words_add_up_to_one_in_every_context() -> None:
    model = NGramModel(["a b c", "a b d", "b b a x y"], words=WORDS)
    asked = [*WORDS, "x", "y"]
    for context in ((), ("a",), ("b",), ("a", "b"), ("b", "b"), ("d", "c")):
        seen = sum(math.exp(model.log_probability([word], after=context)) for word in asked)
        unseen = math.exp(model.log_probability(["never"], after=context))
        assert seen + 5 * unseen == pytest.approx(1)  # 11 words: 4 known, 6 in the texts, and one for all others


def test_witten_bell_by_hand() -> None:
    model = NGramModel(["a b", "a c", "a b"], words=WORDS)
    uniform = 1 / (4 + 3 + 1)
    single = (2 + 3 * uniform) / (6 + 3)
    assert model.log_probability(["b"]) == pytest.approx(math.log(single))
    assert model.log_probability(["b"], after=["a"]) == pytest.approx(math.log((2 + 2 * single) / (3 + 2)))
    assert model.log_probability(["b"], after=["d"]) == pytest.approx(math.log(single))


def test_the_area_under_the_curve_is_the_share_of_pairs_in_the_right_order() -> None:
    generator = np.random.default_rng(3)
    scores, planted = np.round(generator.random(60), 1), generator.random(60) < 0.4
    pairs = [(0.5 if x == y else float(x > y)) for x in scores[planted] for y in scores[~planted]]
    assert area_under_curve(scores, planted) == pytest.approx(np.mean(pairs))
    assert area_under_curve(scores, np.ones(60, dtype=bool)) == 0.5


def test_true_positives_are_counted_above_a_threshold_that_one_in_a_hundred_others_is_above() -> None:
    planted = np.arange(400) < 200
    scores = np.where(planted, np.arange(400) % 4, 0.0)
    assert true_positive_rate(scores, planted)[0] == 0.75
    scores[-2:] = 9.0  # 2 of 200 others: within 1 %
    assert true_positive_rate(scores, planted)[0] == 0.75
    scores[-3:] = 9.0
    rate, interval = true_positive_rate(scores, planted)
    assert rate == 0
    assert interval.low == 0
    assert interval.high < 0.03


def test_coins_that_are_all_alike_are_judged_all_the_same() -> None:
    for planted in (np.ones(60, dtype=bool), np.zeros(60, dtype=bool)):
        found = judge(TERMS, np.zeros(60), planted, guess_rules(60), delta=0, confidence=0.95)
        assert found.auc == 0.5
        assert 0 <= found.true_positives_interval.low <= found.true_positives_interval.high <= 1


def test_an_attack_that_knows_the_coins_reaches_the_power_of_the_test() -> None:
    planted = np.arange(1000) % 2 == 0
    found = judge(TERMS, planted.astype(float), planted, guess_rules(1000), delta=1e-6, confidence=0.95)
    assert (found.auc, found.true_positives) == (1, 1)
    assert [each.correct for each in found.guesses] == [each.rule.guesses for each in found.guesses]
    assert found.epsilon == max(each.epsilon for each in found.guesses) > 5


def test_groups_are_labels_with_enough_canaries_and_those_far_from_the_rest() -> None:
    prefixes = [("The patient said", "a"), ("The nurse wrote", "a"), ("Zebras run", "b")]
    made = make_canaries(120, terms=RARE, taken=frozenset(), per_canary=4, prefixes=prefixes)
    assert groups_of(made, None).keys() == {"label a"}, "40 of b are too few"
    more = make_canaries(150, terms=RARE, taken=frozenset(), per_canary=4, prefixes=prefixes)
    found = groups_of(more, None)
    assert {name: int(chosen.sum()) for name, chosen in found.items()} == {"label a": 100, "label b": 50}
    many = Canaries(more.all * 4)
    far = groups_of(many, Letters())["farthest from the rest"]
    assert far.sum() == 60
    turned = Canaries(tuple(replace(each, planted=not each.planted) for each in many))
    assert (groups_of(turned, Letters())["farthest from the rest"] == far).all(), "coins have no say"
    assert "label None" not in groups_of(Canaries(tuple(replace(each, label=None) for each in more)), None)
