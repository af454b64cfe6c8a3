"""In which language texts are is asked for, not guessed; texts in another one than was stated show in the verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evolution_fixtures import WordEmbedder
from numpy.typing import NDArray
from run_fixtures import Command
from subjects import Places, table
from subjects import texts as english

import understudy as us
from understudy.base.errors import ConfigError
from understudy.ledger import Ledger
from understudy.methods.additions.topics.method import Topics
from understudy.run import defaults as decided
from understudy.run.parts import Table
from understudy.run.settings import run_config
from understudy.text.vocabulary.terms import load_stop_words

pytestmark = pytest.mark.usefixtures("embedder", "languages_are_asked_for")
BUDGET = us.Budget(epsilon=6, delta="1e-6")
SPOKEN = {
    "de": ("Er klagt seit gestern über {} und {}", "Herzrasen Luftnot Schwindel", "Juckreiz Rötung Ausschlag"),
    "fr": ("La patiente se plaint de {} avec {}", "essoufflement vertiges malaises", "démangeaisons rougeurs boutons"),
    "tr": ("Hasta dünden beri {} ve {} ile geldi", "çarpıntı bayılma terleme", "kaşıntı döküntü kızarıklık"),
}
COLLEAGUES = {"text": "note", "label": "clinic", "labels": ["cardio", "neuro", "derma"]}


class Subjects(WordEmbedder):
    """Texts lie near the words of their subject, in any of the languages."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed(texts).astype(np.float64)
        words = [set(each.lower().split()) for _, *both in SPOKEN.values() for each in both]
        for place, text in enumerate(texts):
            for number, subject in enumerate(words):
                if subject & set(text.lower().split()):
                    vectors[place] = 0.25 * vectors[place] + np.eye(vectors.shape[1])[number]
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def spoken(language: str, count: int = 1200) -> list[str]:
    template, *subjects = SPOKEN[language]
    generator = np.random.default_rng(0)
    return [template.format(*generator.choice(subjects[number % 2].split(), 2)) for number in range(count)]


def letters(count: int = 1200) -> list[str]:
    drawn = np.random.default_rng(0).integers(97, 123, (count, 12, 6))
    return [" ".join(bytes(word.tolist()).decode() for word in text) for text in drawn]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    return lambda made: monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda _spec: made)


def charged(folder: Path) -> bool:
    with Ledger(folder / "ledger.sqlite") as ledger:
        return bool(ledger.datasets())


@pytest.mark.parametrize(
    "method", [Topics(topics=2), us.DPKPS(), us.DPKDE(), us.AugPE(), us.FewShot(sampling_rate=0.1)]
)
@pytest.mark.parametrize("language", ["de", "tr"])
def test_nothing_is_charged_where_nothing_tells_the_language(language: str, method: Any, tmp_path: Path) -> None:
    named = table(tmp_path, spoken(language, 30))
    with pytest.raises(ConfigError, match="language of the texts is not declared") as caught:
        us.release(tmp_path / "notes.csv", method, BUDGET, **named)
    assert "language" in str(caught.value)
    assert not charged(tmp_path)
    said: list[str] = []
    assert us.check(tmp_path / "notes.csv", method, BUDGET, listener=us.Listener(say=said.append), **named).usable
    assert any("language of the texts is not declared" in line for line in said)
    warned = us.plan(method, BUDGET, text="note").plan.forecast.warnings
    assert any("language of the texts is not declared" in each for each in warned)


@pytest.mark.parametrize(
    ("names", "language"),
    [
        ({"text": "note", "label": "department", "labels": ["cardiology", "other"]}, "en"),
        ({"text": "text", "columns": "priority=low|high; topic=billing|delivery"}, "en"),
        ({"text": "complaint narrative"}, None),  # tables in any language have English columns
        ({"text": "text", "label": "department", "labels": ["kardiologie", "pflege"]}, None),
        (COLLEAGUES, None),
        ({"text": "anliegen", "label": "abteilung", "labels": ["sport"]}, None),
        ({"text": "body", "label": "code", "labels": ["A1", "B7"]}, None),
        ({"text": "text", "language": "de"}, "de"),
        ({"text": "note", "label": "kind", "labels": ["billing", "delivery"], "language": "fr"}, "fr"),
        ({"text": "text", "stop_words": "es"}, "es"),
        ({"text": "text", "stop_words": "all-languages"}, "all-languages"),
        ({"text": "text", "vocabulary": "built-in"}, "en"),
    ],
)
def test_the_language_is_what_is_stated_or_english_by_the_labels(names: dict[str, Any], language: str | None) -> None:
    config = run_config(names)
    assert decided.language_of(config, Table.of(config)) == language


@pytest.mark.parametrize("code", ["german", "EN", "xx", "d", ""])
def test_a_language_is_two_letters_of_the_standard(code: str) -> None:
    with pytest.raises(ConfigError, match="two letters"):
        run_config({"language": code})


@pytest.mark.parametrize(("code", "word"), [("de", "und"), ("no", "ikke"), ("sw", "und"), ("en", "the")])
def test_stop_words_of_a_language_without_a_list_are_those_of_all(code: str, word: str) -> None:
    assert word in load_stop_words(code)
    assert "ikke" not in load_stop_words("de")


@pytest.mark.parametrize("language", SPOKEN)
def test_topics_are_named_by_the_texts_own_words(language: str, tmp_path: Path, load: Callable[[Any], None]) -> None:
    load(Subjects())
    named = table(tmp_path, spoken(language), owner=lambda number: f"p{number // 2}")
    with pytest.warns(us.UnderstudyWarning, match="knows only English"):
        found = us.topics(tmp_path / "notes.csv", BUDGET, topics=2, language=language, owner="clinician", **named)
    own = [set(each.lower().split()) for each in SPOKEN[language][1:]]
    assert len(found.topics) == 2
    for topic in found.topics:
        assert topic.clear
        assert any(set(topic.terms[:3]) <= each for each in own), topic.terms
    statement = found.release.statement
    assert statement.verdict is not None
    assert statement.verdict.level == "good"
    assert "word for word" in statement.to_markdown()
    us.load_release(_saved(found.release, tmp_path))


def _saved(made: us.Release, folder: Path) -> Path:
    made.save(folder / "made.release")
    return folder / "made.release"


@pytest.mark.parametrize("method", [Topics(topics=2), us.DPKPS()])
def test_under_the_record_unit_words_of_the_texts_are_proposed_and_not_released(method: Any, tmp_path: Path) -> None:
    named = table(tmp_path, spoken("de", 30)) | {"language": "de"}
    with pytest.raises(ConfigError, match=r"built-in list of terms is English") as caught:
        us.release(tmp_path / "notes.csv", method, BUDGET, **named)
    assert all(each in str(caught.value) for each in ("discover_terms", "vocabulary", "one person repeats"))
    assert not charged(tmp_path)
    asked = us.plan(type(method)(discover_terms=0.3), BUDGET, text="note", language="de")
    assert "discovered-terms" in str(asked)
    assert "terms can include what one person repeats in many records" in str(asked)
    refused = us.plan(type(method)(discover_terms=0), BUDGET, text="note", language="de")
    assert "discovered-terms" not in str(refused)


@pytest.mark.parametrize("owner", [{}, {"owner": "person"}])
def test_a_method_that_finds_no_terms_needs_a_list_of_the_language(owner: dict[str, str], tmp_path: Path) -> None:
    named = table(tmp_path, spoken("de", 30)) | {"language": "de"}
    with pytest.raises(ConfigError, match=r"built-in list of terms is English.*vocabulary"):
        us.release(tmp_path / "notes.csv", us.DPKDE(), BUDGET, **named)
    assert not charged(tmp_path)
    words = tmp_path / "words.txt"
    words.write_text("Herzrasen\nLuftnot\nSchwindel", "utf-8")
    own = us.DPKDE(vocabulary=str(words), vocabulary_is_public=True, top_terms=3, length=2)
    assert us.plan(own, BUDGET, text="note", language="de", **owner).plan.charges[0].name == "vocabulary"


@pytest.mark.parametrize("owner", [{}, {"owner": "person"}])
def test_english_notes_with_the_labels_of_colleagues_release_no_word_of_theirs(owner: dict[str, str]) -> None:
    assert "discovered-terms" not in str(us.plan(us.DPKPS(), BUDGET, **COLLEAGUES, **owner))
    assert "discovered-terms" not in str(us.plan(us.DPKPS(), BUDGET, **COLLEAGUES, **owner, language="en"))
    found = us.plan(us.DPKPS(), BUDGET, **COLLEAGUES, **owner, language="de")
    assert ("discovered-terms" in str(found)) == bool(owner)


def test_topics_in_place_of_labels_are_refused_in_another_language() -> None:
    (warning,) = us.plan(us.DPKPS(), BUDGET, text="t", language="de", topics=3).plan.forecast.warnings
    assert "found with English words" in warning


@pytest.mark.parametrize("lines", [spoken("de"), spoken("tr"), letters()], ids=["German", "Turkish", "letters"])
def test_texts_that_are_not_in_the_language_that_was_stated_are_never_called_good(
    lines: list[str], tmp_path: Path, load: Callable[[Any], None]
) -> None:
    load(Subjects())
    named = table(tmp_path, lines) | {"language": "en"}
    found = us.topics(tmp_path / "notes.csv", BUDGET, topics=2, **named)
    assert not any(topic.clear for topic in found.topics)
    made = us.release(tmp_path / "notes.csv", us.DPKPS(), BUDGET, **{**named, "ledger": str(tmp_path / "other.sqlite")})
    for statement in (found.release.statement, made.statement):
        assert statement.usefulness.startswith("Noise: the result is mostly chance")
        assert statement.usefulness.endswith(
            "Hardly any term of the vocabulary occurs in the texts: are they in English?"
        )


def test_english_texts_stay_good(tmp_path: Path, load: Callable[[Any], None]) -> None:
    load(Places())
    found = us.topics(tmp_path / "notes.csv", BUDGET, topics=3, **table(tmp_path, english()), language="en")
    assert all(topic.clear for topic in found.topics)
    assert found.release.statement.usefulness.startswith("Good")


def test_a_language_that_the_texts_are_not_in_finds_hardly_a_term(tmp_path: Path, load: Callable[[Any], None]) -> None:
    load(Subjects())
    named = table(tmp_path, letters())
    with pytest.warns(us.UnderstudyWarning, match="knows only English"):
        found = us.topics(tmp_path / "notes.csv", BUDGET, topics=2, language="de", discover_terms=0.3, **named)
    assert found.release.statement.usefulness.endswith("are they in the language 'de'?")
    assert not any(topic.clear for topic in found.topics)


def test_the_command_says_how_to_state_it_and_keeps_it(tmp_path: Path, understudy: Command) -> None:
    named = table(tmp_path, english(40))
    told = ("--data", str(tmp_path / "notes.csv"), "--text", "note", "--ledger", named["ledger"])
    said = understudy("run", *told, "--epsilon", "6", "--delta", "1e-6", "--output", str(tmp_path / "out"), code=2)
    assert "Declare it with two letters: --language en, or --language de." in said.err
    assert not charged(tmp_path)
    proposed = understudy("init", str(tmp_path / "notes.csv"), code=0).out
    assert "# language: en" in proposed
