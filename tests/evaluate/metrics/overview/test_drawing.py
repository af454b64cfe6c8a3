"""The overview: right in numbers, the same for the same seed, and sound for odd tables."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA

from understudy.evaluate.metrics import overview as drawing
from understudy.evaluate.metrics.overview import make_overview, places, topic_terms
from understudy.evaluate.metrics.results import Evaluation, load_evaluation
from understudy.evaluate.metrics.sample import Sample

SPORT = "match goal team player league coach score"
STARS = "planet orbit telescope star galaxy comet moon"


def about(subject: str, count: int, seed: int) -> list[str]:
    words = np.array(subject.split())
    return [" ".join(row) for row in np.random.default_rng(seed).choice(words, size=(count, 6))]


def around(place: int, count: int, seed: int, *, d: int = 8) -> np.ndarray:
    vectors = np.eye(d)[place] + 0.1 * np.random.default_rng(seed).normal(size=(count, d))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def table(sport: int, stars: int, seed: int, *, embedded: bool = True) -> Sample:
    embeddings = np.concatenate([around(0, sport, seed), around(3, stars, seed + 1)])
    return Sample(
        tuple(about(SPORT, sport, seed) + about(STARS, stars, seed + 1)),
        ("sport",) * sport + ("stars",) * stars,
        embeddings if embedded else None,
    )


TABLES = {"real": table(60, 20, 1), "synthetic": table(10, 30, 3)}


@pytest.fixture(autouse=True)
def maps_by_t_sne(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "_FEWEST", 30)


@pytest.mark.parametrize("embedded", [True, False])
def test_topics_are_the_subjects_with_their_terms_and_shares(embedded: bool) -> None:
    tables = {"real": table(60, 20, 1, embedded=embedded), "synthetic": table(10, 30, 3, embedded=embedded)}
    topics = make_overview(tables, topics=2, seed=0).topics
    by_subject = {subject: topic for topic in topics for subject in (SPORT, STARS) if topic.terms[0] in subject}
    assert set(by_subject[SPORT].terms) == set(SPORT.split())
    assert set(by_subject[STARS].terms) == set(STARS.split())
    assert by_subject[SPORT].shares == {"real": 0.75, "synthetic": 0.25}
    assert by_subject[STARS].shares == {"real": 0.25, "synthetic": 0.75}


def test_class_based_tf_idf_is_that_of_the_paper() -> None:
    words = [["ball", "ball", "the", "goal", "news"], ["news", "star", "star", "star"]]
    mean = (4 + 4) / 2  # "the" is a stop word
    first = {"ball": 2 * math.log(1 + mean / 2), "goal": math.log(1 + mean), "news": math.log(1 + mean / 2)}
    second = {"star": 3 * math.log(1 + mean / 3), "news": math.log(1 + mean / 2)}
    assert topic_terms(words, np.array([0, 1])) == {
        0: tuple(sorted(first, key=lambda term: -first[term])),
        1: tuple(sorted(second, key=lambda term: -second[term])),
    }


def test_lengths_are_counted_between_shared_edges() -> None:
    texts = {"real": ("", "one", "one two", "a b c d e"), "synthetic": ("one two", "x y")}
    profiles = make_overview({name: Sample(each) for name, each in texts.items()}, seed=0).profiles
    assert profiles["real"].words.edges == profiles["synthetic"].words.edges == (0, 1, 2, 3, 4, 5, 6)
    assert profiles["real"].words.counts == (1, 1, 1, 0, 0, 1)
    assert profiles["synthetic"].words.counts == (0, 0, 2, 0, 0, 0)
    assert (profiles["real"].texts, profiles["synthetic"].texts) == (4, 2)


def test_a_few_very_long_texts_do_not_stretch_the_lengths() -> None:
    overview = make_overview({"real": Sample((*["one two three"] * 500, "word " * 5000))}, seed=0)
    assert overview.profiles["real"].words.counts == (0, 0, 0, 500)


def test_labels_are_counted_by_table_and_need_not_be_there() -> None:
    overview = make_overview({**TABLES, "bare": Sample(("a text",), None, around(0, 1, 5))}, seed=0)
    assert overview.profiles["real"].labels == {"sport": 60, "stars": 20}
    assert overview.profiles["bare"].labels == {}
    assert {point.label for point in overview.points if point.of == "bare"} == {""}


def test_the_map_has_the_same_share_of_points_for_each_table() -> None:
    points = make_overview(TABLES, points=60, seed=0).points
    assert [sum(point.of == name for point in points) for name in TABLES] == [30, 30]
    places = np.array([(point.x, point.y) for point in points])
    assert 0 <= places.min() <= places.max() <= 1
    assert (places.max(axis=0) - places.min(axis=0)).max() == pytest.approx(1)
    assert all(point.text in TABLES[point.of].texts for point in points)


def test_on_the_map_a_text_is_near_those_of_its_subject() -> None:
    points = make_overview(TABLES, seed=0).points
    places = np.array([(point.x, point.y) for point in points])
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + 9 * np.eye(len(points))
    nearest = distances.argmin(axis=1)
    assert np.mean([points[row].label == points[near].label for row, near in enumerate(nearest)]) > 0.95


def test_few_texts_are_placed_by_their_principal_components() -> None:
    vectors = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    placed, components = places(vectors, seed=0), PCA(2).fit_transform(vectors)
    apart = [abs(np.subtract.outer(*[column] * 2)) for column in (*placed.T, *components.T)]
    widest = max(apart[2].max(), apart[3].max())
    assert apart[0] == pytest.approx(apart[2] / widest, abs=1e-5)
    assert apart[1] == pytest.approx(apart[3] / widest, abs=1e-5)


def test_the_same_seed_draws_the_same_picture_and_another_one_another() -> None:
    assert make_overview(TABLES, points=60, seed=0) == make_overview(TABLES, points=60, seed=0)
    assert make_overview(TABLES, points=60, seed=0).points != make_overview(TABLES, points=60, seed=1).points


ODD = {
    "no texts": [],
    "one text": ["only this"],
    "empty texts": ["", " ", "\n"],
    "no words": ["!!!", "...", "😀"] * 12,
    "the same text": ["now and then"] * 40,
    "stop words": ["the", "of the"],
    "no blanks": ["我爱北京天安门", "ฉันรักประเทศไทย", "東京は日本の首都です"],
    "lone surrogates": ["\ud800 x", "x \udfff"],
    "long word": ["x" * 10_000],
}


@pytest.mark.parametrize("texts", ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("embedded", [True, False])
def test_odd_tables_can_be_drawn_saved_and_read(texts: list[str], embedded: bool, tmp_path: Path) -> None:
    odd = Sample(tuple(texts), None, around(0, len(texts), 7) if embedded else None)
    same = Sample(odd.texts, None, np.ones((len(odd), 8), dtype=np.float32) if embedded else None)
    for tables in ({"odd": odd}, {"same": same}, {"odd": odd, "even": table(3, 3, 1, embedded=embedded)}):
        overview = make_overview(tables, seed=0)
        places = [place for point in overview.points for place in (point.x, point.y)]
        assert all(0 <= place <= 1 for place in places)
        Evaluation((), overview, {}).save(tmp_path / "evaluation.json")
        assert load_evaluation(tmp_path / "evaluation.json").overview == overview
