"""Topics in place of labels: a run finds them first, and its method reads each record with the nearest for a label."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from clinic import FakeChat, flags, settings, write_csv
from numpy.typing import NDArray
from subjects import SUBJECTS, Places, table, texts

import understudy as us
from understudy.base.errors import ConfigError, ModelError, ReleaseError, ResumeError
from understudy.evaluate.synthetic import SyntheticText
from understudy.ledger import Ledger
from understudy.methods.additions.topics.plan import topics_that_pay
from understudy.methods.additions.topics.release import TopicLabels
from understudy.privacy.guarantee import Budget
from understudy.report.topics import write_topics
from understudy.run import defaults as decisions
from understudy.run import door as measuring
from understudy.run.forecast import forecast
from understudy.run.job import Job
from understudy.run.session import Listener
from understudy.run.settings import run_config
from understudy.run.topics import FoundTopics
from understudy.schema.labels import LabelSet

BUDGET = us.Budget(epsilon=6, delta="1e-6")
SECRETS = {"secret_prior": "0.01", "secret_posterior": "0.1", "secrets_file": "names.txt", "max_records_per_secret": 3}
AUG_PE = {
    "method": "aug-pe",
    "llm": "fake:chat",
    **dict.fromkeys(("vocabulary", "vocabulary_is_public", "top_terms", "length")),
}


@pytest.fixture(scope="module", autouse=True)
def places() -> Iterator[Places]:
    with pytest.MonkeyPatch.context() as patch:
        made = Places()
        patch.setattr("understudy.models.catalog.load_embedder", lambda _spec: made)
        patch.setattr(decisions, "embedder_here", lambda _spec: True)
        yield made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, places: Places) -> us.Result:
    folder = tmp_path_factory.mktemp("topics")
    return ran(folder, [*texts(), *["Zebulon Quagmire 4471 engine wheel"] * 3], output=str(folder / "out"))


@pytest.fixture
def finished(whole: us.Result) -> Path:
    """The folder of a run, to be read only."""
    assert whole.folder is not None
    return whole.folder.root


def ran(folder: Path, lines: Sequence[str], method: Any = None, **options: Any) -> us.Result:
    named = table(folder, lines, options.pop("owners", str))
    named |= {"llm": "none", "records": 40, "topics": 3, "guide": False} | options
    budget = named.pop("budget", BUDGET)
    return us.run(folder / "notes.csv", method or us.DPKPS(), budget, **named)


def subject_of(text: str) -> str | None:
    return next((subject for subject in SUBJECTS if set(subject.split()) & set(text.replace(",", " ").split())), None)


# -- what comes out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guide", [False, True])
def test_texts_are_about_the_topic_that_is_their_label_in_the_shares_of_the_table(
    tmp_path: Path, whole: us.Result, guide: bool
) -> None:
    made = ran(tmp_path, texts(), guide=True) if guide else whole
    release = made.release
    names = release.schema.labels
    assert len(set(names)) == 3
    for record in made.records:
        assert subject_of(record.text) == subject_of(names[record.label])
    assert made.provenance["topic"] == [names[record.label] for record in made.records]
    counts = [sum(record.label == label for record in made.records) for label in range(3)]
    assert counts == pytest.approx([20, 10, 10], abs=2)  # as half and two quarters of the texts are
    assert 5.9 < release.statement.epsilon_at[1e-6] <= 6
    assert release.statement.private
    assert release.noise_check["topics"] == 3


def test_what_is_written_holds_the_topics_and_no_record(finished: Path) -> None:
    for file in (finished / "release").iterdir():
        for planted in (b"ebulon", b"uagmire"):
            assert planted not in file.read_bytes()
    arrays = us.load_release(finished).arrays
    assert not {"labels", "label"} & arrays.keys()
    assert max(array.shape[0] for array in arrays.values() if array.dtype != np.float64) == 3  # nothing by record
    statement = json.loads((finished / "release" / "statement.json").read_text())
    assert statement["labels_found"]
    assert "topics that the run found" in statement["label_set"]
    words = (finished / "release" / "statement.md").read_text()
    assert "The labels are topics that the run found" in words
    assert "label set: declared" not in words


def test_a_release_s_topics_tell_the_topic_of_any_text(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = us.load_release(finished)
    found = us.FoundTopics(release)
    assert [topic.name for topic in found.topics] == list(release.schema.labels)
    assert [topic.clear for topic in found.topics] == [True] * 3
    for place, subject in enumerate(map(subject_of, release.schema.labels)):
        assert found.assign([f"about {subject}"]) == [place]
    other = Places()
    other.fingerprint = "f" * 64
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda _spec: other)
    with pytest.raises(ReleaseError, match="were found with the embedder"):
        us.FoundTopics(release).assign(["a text"])


def test_more_texts_of_the_release_have_the_same_labels(finished: Path) -> None:
    release = us.load_release(finished)
    more = us.generate(release, llm="none", records=20)
    assert {record.label for record in more.records} <= set(range(3))
    assert more.provenance["topic"][0] in release.schema.labels
    each = us.generate(release, llm="none", records_per_label=2)
    assert [record.label for record in each.records] == [0, 0, 1, 1, 2, 2]


def test_a_language_model_is_told_the_names_of_topics(tmp_path: Path, use_chat: Any) -> None:
    chat = use_chat(FakeChat())
    made = ran(tmp_path, texts(), us.AugPE(population=6, rounds=1, variations=1), llm="fake:chat", records=None)
    asked = "\n".join(message.content for request in chat.asked for message in request.messages)
    assert all(name in asked for name in made.release.schema.labels)
    assert "public words by which" not in asked


def test_typed_columns_go_with_topics(tmp_path: Path) -> None:
    lines = texts(800)
    table(tmp_path, lines)
    rows = [{"note": line, "paid": "yes" if subject_of(line) == SUBJECTS[0] else "no"} for line in lines]
    write_csv(tmp_path / "paid.csv", rows, ("note", "paid"))
    made = us.run(
        tmp_path / "paid.csv",
        us.DPKPS(),
        BUDGET,
        text="note",
        topics=3,
        columns="paid=yes|no",
        llm="none",
        records=60,
        insecure_noise_seed=0,
        ledger=str(tmp_path / "ledger.sqlite"),
        output=str(tmp_path / "out"),
    )
    agree = [
        (subject_of(name) == SUBJECTS[0]) == (paid == "yes")
        for name, paid in zip(made.provenance["topic"], made.columns["paid"], strict=True)
    ]
    assert np.mean(agree) > 0.85
    us.load_release(tmp_path / "out")


# -- one budget, charged once -----------------------------------------------------------------------------------------


class Crash(BaseException):
    """The machine goes down."""


def test_a_run_that_is_killed_before_each_value_resumes_with_the_same_topics_and_one_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, measured = measuring.measure, []

    def dies(mechanism: Any, *arguments: Any, **named: Any) -> NDArray[np.float64]:
        if len(measured) == kill:
            raise Crash
        measured.append(mechanism)
        return real(mechanism, *arguments, **named)

    monkeypatch.setattr(measuring, "measure", dies)
    for kill in range(8):
        with pytest.raises(Crash):
            ran(tmp_path, texts(400), output=str(tmp_path / "out"))
        assert len(measured) == kill
    kill = -1
    made = ran(tmp_path, texts(400), output=str(tmp_path / "out"))
    assert len(measured) == 8  # each noisy value once
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        assert len(ledger.history("notes")) == 1
    assert made.statement.private
    again = ran(tmp_path, texts(400), output=str(tmp_path / "out"))
    assert again.release.digest == made.release.digest


def test_a_run_goes_on_with_as_many_topics_as_it_began_with(tmp_path: Path) -> None:
    output, said = str(tmp_path / "out"), list[str]()
    listener = Listener(say=said.append)
    made = ran(tmp_path, texts(400), topics="auto", expected_records=2000, output=output, listener=listener)
    assert any(" topics, which suits about " in line for line in said)
    count = len(made.release.schema.labels)
    again = ran(tmp_path, texts(400), topics="auto", expected_records=90_000, output=output)
    assert len(again.release.schema.labels) == count
    resumed = decided(tmp_path, expected_records=90_000, output=output).topics_decision
    assert resumed.line == f"Using {count} topics, because this folder's run began that way."
    with pytest.raises(ResumeError):
        ran(tmp_path, texts(400), topics=count + 1, output=output)


# -- how many ---------------------------------------------------------------------------------------------------------


def decided(folder: Path, **changes: Any) -> Job:
    named = {"label": None, "labels": None, "topics": "auto", "epsilon": "6", "expected_records": 3000}
    return Job(run_config(settings(folder, **named | changes)))


def test_as_many_topics_are_looked_for_as_the_records_carry_and_it_is_said(tmp_path: Path) -> None:
    made = decided(tmp_path)
    assert made.topics_decision.line == "Using 8 topics, which suits about 3,000 records."
    assert made.label_set.size == 8
    assumed = decided(tmp_path, expected_records=None).topics_decision.line
    assert assumed.endswith(" suits about 5,000 records (an assumption: declare the size with --expected-records).")
    assert decided(tmp_path, epsilon="1").label_set.size < 8
    assert decided(tmp_path, expected_records=10**6).label_set.size == 50
    planned = forecast(run_config(settings(tmp_path, label=None, labels=None, topics="auto", epsilon="6")))
    assert "topics-sums-3" in [charge.name for charge in planned.plan.charges]
    assert planned.plan.charges[0].name == "topics-votes"
    assert "Using " in planned.words


def test_where_not_two_pay_there_are_none(tmp_path: Path) -> None:
    made = decided(tmp_path, expected_records=60, epsilon="0.5")
    assert made.topics_decision.line == "Using no topics: two are too many for about 60 records."
    assert made.label_set == LabelSet()
    assert not made.additions


def test_the_method_topics_decides_too_and_looks_for_two_at_least(tmp_path: Path) -> None:
    few = Job(run_config(settings(tmp_path, **_own(expected_records=60, epsilon="0.5"))))
    many = Job(run_config(settings(tmp_path, **_own(expected_records=3000, epsilon="6"))))
    assert few.method.dump()["topics"] == 2
    assert many.method.dump()["topics"] == topics_that_pay(Budget(6, "1e-6"), share=1, records=3000) > 15
    assert not many.additions


def _own(**changes: Any) -> dict[str, Any]:
    others = dict.fromkeys(("label", "labels", "vocabulary", "vocabulary_is_public", "top_terms", "length"))
    return {**others, "method": "topics", "topics": "auto", **changes}


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"label": "department", "labels": "cardiology,dermatology"}, "found in place of labels"),
        ({"label": "department", "labels_from_data": True}, "found in place of labels"),
        ({"topics": 1}, "At least two topics"),
        ({"topics": 0}, "topics"),
        ({"topics": True}, "topics"),
        ({"topics": "some"}, "topics"),
        ({"delta": "0", "noise": "laplace"}, "needs a delta"),
        ({"text": "topic"}, "called 'topic'"),
        ({"columns": "topic=a|b"}, "called 'topic'"),
        ({**AUG_PE, "method": "few-shot"}, "cannot be the labels of few-shot"),
        ({**AUG_PE, "method": "private-prediction"}, "cannot be the labels of private-prediction"),
        ({**AUG_PE, "epsilon": None, "delta": None, **SECRETS}, "not secrets"),
    ],
)
def test_what_does_not_go_with_topics_is_refused_before_anything_is_charged(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    named = {"label": None, "labels": None, "topics": 4, **changes}
    with pytest.raises(ConfigError, match=problem):
        Job(run_config(settings(tmp_path, **named))).plan()


def test_a_release_that_holds_other_topics_than_it_says_is_refused(tmp_path: Path, finished: Path) -> None:
    made = us.load_release(finished)
    changes: list[Callable[[Any], Any]] = [
        lambda it: replace(it, arrays={**it.arrays, "topic-centres": it.arrays["topic-centres"][:2]}),
        lambda it: replace(it, arrays={**it.arrays, "topic-sizes": it.arrays["topic-sizes"] * np.nan}),
        lambda it: replace(it, strings={**it.strings, "topic-terms": it.strings["topic-terms"][:5]}),
        lambda it: replace(it, schema=replace(it.schema, topics=False)),
        lambda it: replace(it, statement=replace(it.statement, labels_found=False)),
        lambda it: replace(it, statement=replace(it.statement, labels_declared=False)),
        lambda it: replace(it, schema=replace(it.schema, labels=())),
        lambda it: replace(it, arrays={n: a for n, a in it.arrays.items() if n != "topic-centres"}),
    ]
    for change in changes:
        change(made).save(tmp_path / "bad.release")
        with pytest.raises(ReleaseError):
            us.load_release(tmp_path / "bad.release")


def test_a_corpus_that_was_read_with_labels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("note,department\n" + "a text,skin\n" * 30)
    read = us.read_corpus(tmp_path / "more.csv", text="note", label="department", labels=["skin"])
    with pytest.raises(ConfigError, match="read with a label column"):
        us.run(
            read,
            us.DPKPS(),
            BUDGET,
            **{"topics": 3, "llm": "none", "guide": False, "dataset": "more"},
            **{"label": None, "labels": None, "labels_from_data": False},
        )


def test_an_embedder_that_drops_a_text_is_refused() -> None:
    class Short(Places):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return super().embed(texts)[1:]

    with pytest.raises(ModelError, match="one vector per text"):
        TopicLabels(Short(), np.zeros((2, 384), dtype=np.int16))(["one", "two"])


# -- the command line, and what reads a run's folder ------------------------------------------------------------------


def test_the_command_line_and_an_evaluation_and_a_report_take_topics(tmp_path: Path, understudy: Any) -> None:
    named = table(tmp_path, texts(400)) | {"data": str(tmp_path / "notes.csv"), "epsilon": "6", "delta": "1e-6"}
    values = {**named, "topics": 3, "llm": "none", "records": 40, "output": str(tmp_path / "out")}
    understudy("run", *flags(values), code=0)
    written = pq.read_table(tmp_path / "out" / "release" / "provenance.parquet")
    assert set(written["topic"].to_pylist()) <= set(us.load_release(tmp_path / "out").schema.labels)
    understudy("evaluate", str(tmp_path / "notes.csv"), str(tmp_path / "out"), code=0)
    understudy("show", str(tmp_path / "out"), code=0)
    pages = understudy("report", str(tmp_path / "out"), code=0)
    assert str(tmp_path / "out" / "release" / "topics.html") in pages.out.splitlines()
    planned = understudy("plan", *flags({"topics": "auto", "epsilon": "6", "delta": "1e-6", "text": "note"}), code=0)
    assert "topics-votes" in planned.out


def test_the_page_of_topics_shows_up_to_three_synthetic_texts_of_each(tmp_path: Path, whole: us.Result) -> None:
    made = FoundTopics(whole.release)
    biggest, *others = made.topics
    names = [str(name) for name in whole.release.schema.labels]
    texts = [SyntheticText(f"{place} text <b>of</b> " + 300 * "x", names[biggest.number]) for place in range(5)]
    texts += [SyntheticText("engine, wheel", names[others[0].number], phrases=("engine", "wheel"))]  # only its phrases
    page = write_topics(made, tmp_path / "topics.html", texts).read_text("utf-8")
    (shown,) = re.findall(r'<ul aria-label="Synthetic texts">(.*?)</ul>', page)
    assert shown.count("<li") == 3
    assert "<b>" not in shown
    assert shown.count("…") == 3
    assert len(set(re.findall("[0-4] text", shown))) == 3
    assert "They are synthetic" in page
    assert "They are synthetic" not in write_topics(made, tmp_path / "topics.html").read_text("utf-8")


# -- a label is a function of the record alone ------------------------------------------------------------------------


def test_a_label_is_that_of_the_nearest_centre_in_any_company(places: Places) -> None:
    lines = texts(50)
    centres = np.round(4000 * places.embed([f"about {subject}" for subject in SUBJECTS])).astype(np.int16)
    labels = TopicLabels(places, centres)
    whole = labels(lines)
    assert whole.dtype == np.int32
    assert np.array_equal(whole, [labels([line])[0] for line in lines])
    assert [SUBJECTS[label] for label in whole] == [subject_of(line) for line in lines]
    assert labels([]).shape == (0,)


def test_a_text_without_a_vector_has_the_largest_topic(monkeypatch: pytest.MonkeyPatch, places: Places) -> None:
    centres = np.round(4000 * places.embed([f"about {subject}" for subject in SUBJECTS])).astype(np.int16)
    monkeypatch.setattr(Places, "embed", lambda _self, lines: np.full((len(lines), centres.shape[1]), np.nan))
    assert TopicLabels(places, centres)(["one", "two"]).tolist() == [0, 0]
