"""The verb `topics`: a private table in, topics with names and noisy sizes out, and a page."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import FakeChat, flags, rows, settings, write_csv
from run_fixtures import Said
from subjects import SUBJECTS, Places, table, texts

import understudy as us
from understudy.base.errors import ConfigError, ModelError, ReleaseError
from understudy.ledger import Ledger
from understudy.methods.additions.topics.found import Topic
from understudy.methods.additions.topics.release import TopicSums
from understudy.models.types import Completion
from understudy.report.topics import write_topics
from understudy.run import topics as finding
from understudy.run.session import Listener
from understudy.run.topics import FoundTopics
from understudy.text.vocabulary.terms import load_vocabulary

pytestmark = pytest.mark.usefixtures("embedder")
BUDGET = us.Budget(epsilon=4, delta="1e-6")
CENTRES = np.eye(3, 384, dtype=np.int16)


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    made = Places()
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: made)
    return made


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, to be read only."""
    folder = tmp_path_factory.mktemp("topics")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("understudy.models.catalog.load_embedder", lambda spec: Places())
        found_in(folder, [*texts(), *["Zebulon Quagmire 4471 engine wheel"] * 3], topics=3, output=folder / "out")
    return folder / "out"


@pytest.fixture
def found(finished: Path, places: Places) -> FoundTopics:
    return FoundTopics(us.load_release(finished / "release" / "topics.release"))


def found_in(folder: Path, lines: Sequence[str], *, budget: us.Budget = BUDGET, **options: Any) -> FoundTopics:
    named = table(folder, lines) | options
    return us.topics(folder / "notes.csv", budget, **named)


# -- what comes out ---------------------------------------------------------------------------------------------------


def test_topics_have_the_names_and_the_sizes_of_what_the_texts_are_about(tmp_path: Path, places: Places) -> None:
    lines = texts()
    found = found_in(tmp_path, lines, topics=3)
    assert [topic.number for topic in found.topics] == [0, 1, 2]
    truth = [sum(bool(set(subject.split()) & set(line.split())) for line in lines) for subject in SUBJECTS]
    assert found.topics[0].size == pytest.approx(truth[0], abs=60)
    for topic in found.topics:
        (subject,) = (each for each in SUBJECTS if topic.terms[0] in each.split())
        assert 3 <= len(topic.terms) <= 10
        assert topic.clear
        assert abs(topic.size - truth[SUBJECTS.index(subject)]) < 2 * (topic.high - topic.low)  # 8 std
        assert topic.low < topic.size < topic.high


def test_a_term_that_is_in_no_text_names_no_topic_however_near_it_is(tmp_path: Path, places: Places) -> None:
    lines, absent = texts(), [f"{word} master" for subject in SUBJECTS for word in subject.split()]
    (tmp_path / "terms.txt").write_text("\n".join([*absent, *" ".join(SUBJECTS).split()]), "utf-8")
    own = {"vocabulary": str(tmp_path / "terms.txt"), "vocabulary_is_public": True}
    found = found_in(tmp_path, lines, topics=3, **own)
    assert all(topic.terms for topic in found.topics)
    assert not {term for topic in found.topics for term in topic.terms} & {*absent}


def test_texts_are_assigned_to_the_nearest_topic_and_alike_in_any_company(found: FoundTopics) -> None:
    named = {subject: found.assign([f"about {subject}"])[0] for subject in SUBJECTS}
    assert sorted(named.values()) == [0, 1, 2]
    lines = texts(200)
    assigned = found.assign(lines)
    assert assigned.shape == (200,)
    assert np.array_equal(assigned, [found.assign([line])[0] for line in lines])
    assert found.assign([]).shape == (0,)
    with pytest.raises(ConfigError, match="single text"):
        found.assign("a text")
    with pytest.raises(ConfigError, match="not a string"):
        found.assign(["a text", None])  # type: ignore[list-item]


def test_sizes_count_the_records_that_assign_counts_but_for_the_noise(tmp_path: Path, places: Places) -> None:
    lines = texts()
    found = found_in(tmp_path, lines, topics=3, insecure_no_noise=True)
    counts = np.bincount(found.assign(lines), minlength=len(found.topics))
    assert [topic.size for topic in found.topics] == pytest.approx(counts, abs=0.01)
    assert not found.release.statement.private


def test_the_result_is_a_frame_and_json(found: FoundTopics) -> None:
    frame = found.to_pandas()
    assert list(frame.columns) == ["topic", "name", "terms", "size", "low", "high", "clear"]
    assert list(frame["topic"]) == [0, 1, 2]
    assert json.loads(json.dumps(found.to_json()))[0]["name"] == found.topics[0].name
    assert "3 topics" in repr(found)


def test_only_public_terms_and_numbers_leave(finished: Path, found: FoundTopics) -> None:
    terms = set(load_vocabulary().terms[:6000])
    assert all(term in terms for topic in found.topics for term in topic.terms)
    for file in (finished / "release").iterdir():
        assert b"ebulon" not in file.read_bytes()
        assert b"uagmire" not in file.read_bytes()
    assert found.release.arrays.keys() == {"centres", "topic", "sizes", "said"}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sizes", lambda sizes: sizes * np.nan),
        ("topic", lambda topic: topic + 7),
        ("topic", lambda topic: -topic - 1),
        ("centres", lambda centres: centres[:, :0].astype(np.float32)),
        ("centres", lambda centres: np.full_like(centres, 30_000)),
        ("sizes", lambda sizes: sizes[:-1]),
        ("sizes", lambda sizes: sizes[:0]),
    ],
)
def test_a_release_that_holds_anything_else_is_refused(
    tmp_path: Path, found: FoundTopics, name: str, change: Callable[[Any], Any]
) -> None:
    made = found.release
    replace(made, arrays={**made.arrays, name: change(made.arrays[name])}).save(tmp_path / "bad.release")
    with pytest.raises(ReleaseError):
        us.load_release(tmp_path / "bad.release")


def test_no_size_is_below_0_or_above_that_of_all_and_no_range_is_tight(tmp_path: Path, places: Places) -> None:
    made = found_in(tmp_path, texts(300), topics=3, budget=us.Budget(2, "1e-6")).release
    std = made.statement.noise_multiplier("sizes")
    assert std is not None
    for sizes in ([420.0, 3.0, -4.0], [40.0, -4.0, -40.0], [-1.0, -2.0, -300.0]):
        arrays = {**made.arrays, "sizes": np.array(sizes), "topic": np.arange(3, dtype=np.int32)}
        arrays |= {"said": np.ones(3, dtype=made.arrays["said"].dtype)} if "said" in arrays else {}
        strings = {"terms": [f"term {number}" for number in range(30)]}  # noise may have merged some
        shown = FoundTopics(replace(made, arrays={**arrays, "centres": CENTRES}, strings=strings)).topics
        for topic, size in zip(shown, sizes, strict=True):
            assert topic.low <= topic.size <= topic.high
            assert 0 <= topic.size <= max(sum(sizes), 0)
            assert topic.high == pytest.approx(max(size, topic.size) + 1.96 * std), "also where it is cut to the sum"
        assert [topic.clear for topic in shown] == [sizes[0] > 100, False, False]


# -- the verb ---------------------------------------------------------------------------------------------------------


def test_the_verb_writes_a_page_and_prints_where_it_is(tmp_path: Path, understudy: Any, places: Places) -> None:
    named = table(tmp_path, texts())
    values = {**named, "data": str(tmp_path / "notes.csv"), "topics": 3, "epsilon": "4", "delta": "1e-6"}
    said = understudy("topics", *flags({**values, "output": str(tmp_path / "out")}), code=0)
    page = tmp_path / "out" / "release" / "topics.html"
    assert said.out.strip() == str(page)
    told = page.read_text("utf-8")
    found = FoundTopics(us.load_release(tmp_path / "out" / "release" / "topics.release"))
    assert all(topic.name in told for topic in found.topics)
    assert "What is promised" in told
    assert "The guarantee protects" in told
    assert "default-src &#39;none&#39;" in told or "default-src 'none'" in told
    listed = understudy("show", str(tmp_path / "out"), code=0).out.partition("## Topics\n")[2]
    assert all(f"- {topic.name}: " in listed for topic in found.topics)
    before = found.release.digest
    again = understudy("topics", *flags({**values, "output": str(tmp_path / "out")}), "--json")
    made = json.loads(again.out)
    assert [entry["topic"] for entry in made["topics"]] == [0, 1, 2]
    assert us.load_release(made["release"]).digest == before


def test_a_resumed_run_finds_the_same_topics_and_charges_once(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = str(tmp_path / "out")
    real, calls = TopicSums.of_batch, []

    def dies(query: TopicSums, batch: Any) -> Any:
        calls.append(query.centres)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(query, batch)

    monkeypatch.setattr(TopicSums, "of_batch", dies)
    with pytest.raises(KeyboardInterrupt):
        found_in(tmp_path, texts(300), topics=3, output=output)
    monkeypatch.setattr(TopicSums, "of_batch", real)
    found = found_in(tmp_path, texts(300), topics=3, output=output)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert len(ledger.history("notes")) == 1
    assert found.release.statement.private


def test_texts_can_be_generated_of_a_release_of_topics(found: FoundTopics) -> None:
    made = us.generate(found.release, llm="none", records=30)
    assert len(made.records) == 30
    terms = {term for topic in found.topics for term in topic.terms}
    assert all(set(record.text.split(", ")) <= terms for record in made.records)


# -- bad input --------------------------------------------------------------------------------------------------------


def test_one_topic_is_about_everything(tmp_path: Path, places: Places) -> None:
    (topic,) = found_in(tmp_path, texts(), topics=1).topics
    assert topic.size == pytest.approx(1500, abs=60)
    assert 3 <= len(topic.terms) <= 10


@pytest.mark.parametrize(
    "lines", [["the same"] * 300, [" ", "?", "."] * 100, ["one text"]], ids=["alike", "empty", "one"]
)
def test_texts_that_have_no_topics_run_to_the_end(tmp_path: Path, lines: list[str]) -> None:
    found = found_in(tmp_path, lines, topics=5, max_bad_rows=1.0)
    assert 1 <= len(found.topics) <= 5
    assert sum(topic.clear for topic in found.topics) <= 3
    assert set(found.assign(["the same", "another"])) <= set(range(len(found.topics)))


def test_more_topics_than_records_can_carry_are_said_to_be_noise_before_the_charge(tmp_path: Path) -> None:
    named = table(tmp_path, texts(50))
    few = us.plan(us.Topics(topics=500), BUDGET, expected_records=1000)
    many = us.plan(us.Topics(topics=5), BUDGET, expected_records=100_000)
    assert few.plan.forecast.verdict.level == "noise"
    assert many.plan.forecast.verdict.level == "good"
    said: list[str] = []
    listener = us.Listener(say=said.append)
    us.topics(tmp_path / "notes.csv", BUDGET, topics=100, expected_records=100, listener=listener, **named)
    assert any(
        line.startswith("Noise") or "do not spend" in line
        for line in said[: said.index("Reading the private records.")]
    )


def test_an_owner_with_half_of_the_texts_makes_no_topic(tmp_path: Path, places: Places) -> None:
    one = [f"recipe flour oven number {number}" for number in range(700)]
    others = [f"about engine wheel number {number}" for number in range(700)]
    named = table(tmp_path, [*one, *others], lambda number: "one" if number < 700 else f"other {number}")
    found = us.topics(tmp_path / "notes.csv", BUDGET, topics=2, owner="clinician", insecure_noise_seed=0, **named)
    clear = [topic for topic in found.topics if topic.clear]
    assert clear
    for topic in clear:
        assert topic.terms[0] not in {"recipe", "flour", "oven"}  # what fills the list up may be any word


@pytest.mark.parametrize(
    ("options", "match"),
    [
        *(({"topics": each}, "expected a number from 1 to 1000, or auto") for each in (0, 2000, "2000", "few")),
        ({"label": "clinician", "labels": "0,1"}, "without labels"),
        ({"budget": us.Budget(3, 0)}, "delta"),
    ],
)
def test_what_cannot_be_is_refused_before_the_charge(tmp_path: Path, options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        found_in(tmp_path, texts(20), **options)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert not ledger.datasets()


def test_an_embedder_that_is_missing_is_said_before_the_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_spec: str) -> Any:
        raise ModelError("The model is not on this machine.", "Pull it.")

    monkeypatch.setattr("understudy.models.catalog.load_embedder", missing)
    with pytest.raises(ModelError, match="not on this machine"):
        found_in(tmp_path, texts(20))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert not ledger.datasets()


def test_another_embedder_and_another_method_are_refused(tmp_path: Path, found: FoundTopics, places: Places) -> None:
    places.fingerprint = "9" * 64
    with pytest.raises(ReleaseError, match="embedder"):
        found.assign(["a text"])
    other = us.release(**{"corpus": tmp_path / "kps.csv", **_kps(tmp_path)})
    with pytest.raises(ReleaseError, match="contains no topics"):
        FoundTopics(other)


def _kps(folder: Path) -> dict[str, Any]:
    write_csv(folder / "kps.csv", rows())
    values = settings(folder)
    named = {name: values[name] for name in ("text", "label", "labels", "ledger")}
    method = us.DPKPS(vocabulary=values["vocabulary"], vocabulary_is_public=True, top_terms=10, length=3)
    return {"method": method, "budget": BUDGET, **named}


def test_texts_to_assign_stay_on_this_machine_unless_told_otherwise(found: FoundTopics, places: Places) -> None:
    places.local = False  # type: ignore[misc]
    with pytest.raises(ModelError, match="away from this machine"):
        found.assign(["about engine"])
    assert len(replace(found, trust_endpoint=True).assign(["about engine"])) == 1


def test_a_release_whose_topics_have_no_centre_is_refused(found: FoundTopics) -> None:
    made = found.release
    arrays = {**made.arrays, "topic": np.zeros(3, dtype=np.int32), "sizes": np.array([5.0, 4.0, 3.0])}
    with pytest.raises(ReleaseError, match="without a centre"):
        _ = FoundTopics(replace(made, arrays=arrays)).topics


def test_a_page_of_topics_that_are_all_too_small_says_how_many_were_found(found: FoundTopics, tmp_path: Path) -> None:
    made = found.release
    few = replace(made, arrays={**made.arrays, "sizes": np.zeros_like(made.arrays["sizes"])})
    page = write_topics(FoundTopics(few), tmp_path / "topics.html").read_text("utf-8")
    assert f"about: {len(found.topics)} topics, none of them clear." in page


def test_another_method_finds_no_topics(tmp_path: Path, places: Places) -> None:
    with pytest.raises(ConfigError):
        found_in(tmp_path, texts(30), topics=2, method="dp-kps")


def test_a_report_of_a_table_without_labels_and_columns_is_made(tmp_path: Path, finished: Path) -> None:
    (paths,) = us.report(shutil.copytree(finished, tmp_path / "out"))
    assert "topics" in paths.shareable.read_text("utf-8")
    for page in (paths.shareable, finished / "release" / "statement.md"):
        assert "label set" not in page.read_text("utf-8")


# -- titles -----------------------------------------------------------------------------------------------------------


def titled(folder: Path, patch: pytest.MonkeyPatch, reply: Callable[[Any], Completion], **options: Any) -> Any:
    """What was found, and the model that was asked for titles."""
    chat = FakeChat(reply)
    patch.setattr("understudy.models.catalog.load_chat", lambda _spec, **_options: chat)
    return found_in(folder, [*texts(), *["Zebulon Quagmire 4471 engine wheel"] * 3], topics=3, **options), chat


def test_a_language_model_gives_titles_from_released_terms_alone(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(request: Any) -> Completion:
        title = "Flight and travel" if "flight" in request.messages[0].content else "<b>New</b> engine parts"
        return Completion(f'**"{title}"**\n', "stop")

    plain, _ = titled(tmp_path, monkeypatch, reply, output=str(tmp_path / "out"))
    found, chat = titled(tmp_path, monkeypatch, reply, llm="fake:chat", output=str(tmp_path / "out"))
    assert found.release.digest == plain.release.digest, "later, and free"
    asked = {message.content for request in chat.asked for message in request.messages}
    assert asked == {finding._ASKED.format(", ".join(topic.terms)) for topic in found.topics}
    for topic in found.topics:
        expected = {"flight": "Flight and travel", "engine": "<b>New</b> engine parts", "recipe": ""}
        assert topic.title == next(title for term, title in expected.items() if term in topic.terms)
    assert len({entry["title"] for entry in found.to_json()}) == 3
    page = (tmp_path / "out" / "release" / "topics.html").read_text("utf-8")
    assert '<th scope="row">Flight and travel<small>' in page
    assert "<b>New" not in page
    assert "A language model guessed the titles" in page


@pytest.mark.parametrize(
    ("said", "finish", "title"),
    [
        ('The subject is "The Other Side of the Same Coin', "length", ""),
        ('The subject is "vat" in the context of the collection of texts.', "stop", ""),
        ('The subject is "Eye examinations".', "stop", "Eye examinations"),
        ("**Title:** Eye examinations\n\nThese words are all ab", "length", "Eye examinations"),
        ("Title deeds", "stop", "Title deeds"),
        ("Eyes", "stop", ""),
        ("All of the things that eyes do", "stop", ""),
        ('"Eyes" and "ears"', "stop", ""),
        ("The subject is:", "stop", ""),
    ],
)
def test_an_answer_that_is_no_title_is_none(said: str, finish: Any, title: str) -> None:
    topic = Topic(0, ("eye",), 9.0, 8.0, 10.0, clear=True)
    chat = FakeChat(lambda _request: Completion(said, finish))
    assert finding.titles_of([topic], chat, lambda texts: np.ones((len(texts), 1), np.float32)) == (title,)


def test_a_title_that_is_of_another_topic_or_of_none_is_not_used() -> None:
    vectors = {
        **{"pin": (1, 0, 0), "card": (0.9, 0.1, 0), "refund": (0, 1, 0), "money": (0.3, 0.9, 0)},
        **{
            "Theft alarm": (0.2, 0, 1),
            "Money back": (0.1, 1, 0),
            "Secret codes": (1, 0.1, 0),
            "A pin theft": (0, 0, 1),
            "Card refund": (0.6, 0.9, 0),
            "": (0, 0, 1),
        },
    }

    def embed(texts: Sequence[str]) -> Any:
        found = np.array([vectors[text] for text in texts], dtype=np.float32)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    said: list[str] = []

    def titles(first: str, second: str) -> tuple[str, ...]:
        replies = {"pin, card": first, "refund, money": second}
        chat = FakeChat(
            lambda request: Completion(
                next(said for terms, said in replies.items() if terms in request.messages[0].content), "stop"
            )
        )
        two = [Topic(0, ("pin", "card"), 9.0, 8.0, 10.0, True), Topic(1, ("refund", "money"), 9.0, 8.0, 10.0, True)]
        return finding.titles_of([*two, Topic(2, ("sex",), 0.1, 0, 3.0, False)], chat, embed, Listener(said.append))

    assert titles("Secret codes", "Money back") == ("Secret codes", "Money back", "")
    assert said == []
    assert titles("Theft alarm", "Money back") == ("", "Money back", ""), "like none of its terms"
    assert titles("Money back", "Money back") == ("", "Money back", ""), "fits another topic better"
    assert titles("Money back", "Money") == ("", "", "")
    assert titles("A pin theft", "Money back") == ("A pin theft", "Money back", ""), "has one of its terms"
    assert titles("Card refund", "Money back") == ("", "Money back", ""), "near both, and nearer to the other"
    kept = "these topics keep their names."
    assert said == [
        f"1 of 2 titles are refused (1 not near the topic's terms): {kept}",
        f"1 of 2 titles are refused (1 not near the topic's terms): {kept}",
        f"2 of 2 titles are refused (1 not a title of two to five words, 1 not near the topic's terms): {kept}",
        f"1 of 2 titles are refused (1 nearer to another topic's terms): {kept}",
    ]


def test_a_refused_title_is_told_with_the_reason(
    tmp_path: Path, places: Places, understudy: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And as no table is made, nothing is said of its columns."""
    (tmp_path / "notes.jsonl").write_text(
        "".join(f"{json.dumps({'text': text, 'stars': 3})}\n" for text in texts()), "utf-8"
    )
    chat = FakeChat(lambda _request: Completion("", "failed", error="down"))
    monkeypatch.setattr("understudy.models.catalog.load_chat", lambda _spec, **_options: chat)
    words = ("--data", str(tmp_path / "notes.jsonl"), "--text", "text", "--language", "en", "--embedder", "fake")
    words += ("--epsilon", "9", "--delta", "1e-6", "--llm", "x", "--output", str(tmp_path / "out"))
    said = understudy(
        "topics",
        *words,
        "--topics",
        "3",
        "--epsilon",
        "9",
        "--delta",
        "1e-6",
        "--llm",
        "x",
        "--output",
        str(tmp_path / "o"),
    )
    assert said.code == 0, said.err
    assert "3 of 3 titles are refused (3 not answered): these topics keep their names." in said.err
    assert "stars" not in said.err


def test_a_term_of_a_stranger_fills_no_prompt() -> None:
    chat = FakeChat(lambda _request: Completion("Eyes", "stop"))
    topics = [Topic(0, ("x" * 5000, "eye"), 9.0, 8.0, 10.0, clear=True)]
    finding.titles_of(topics, chat, lambda texts: np.ones((len(texts), 1), np.float32))
    assert chat.asked[0].messages[0].content == finding._ASKED.format("x" * 80 + ", eye")


def test_without_an_answer_a_topic_keeps_its_name_and_without_a_model_nothing_is_asked(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, chat = titled(
        tmp_path, monkeypatch, lambda _request: Completion("", "failed", error="down"), llm="fake:chat"
    )
    assert chat.asked
    assert {topic.title for topic in found.topics} == {""}
    for options in ({"llm": "none"}, {}):
        found, chat = titled(
            tmp_path,
            monkeypatch,
            lambda _request: Completion("x", "stop"),
            dataset="notes",
            insecure_noise_seed=1,
            **options,
        )
        assert not chat.asked
        assert "title" not in found.to_json()[0]


def test_a_model_that_cannot_be_asked_is_said_before_the_charge(tmp_path: Path, places: Places) -> None:
    with pytest.raises((ConfigError, ModelError)):
        found_in(tmp_path, texts(20), topics=3, llm="openai:gpt", api_key_env="NO_SUCH_KEY")
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert not ledger.datasets()
