"""What the checks saw is what the release reads and the ledger charged: data that change meanwhile, or before a run is
resumed, stop it before noise is drawn on them, and the same command goes on once they are as they were."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import COLUMNS, LABELS, TERMS, prompt_file, rows, settings, write_csv
from evolution_fixtures import WordEmbedder, evolving
from run_fixtures import runs_charged
from secret_fixtures import protecting, public_rows, secret_rows

import understudy as us
from understudy.base.errors import ConfigError, CorpusError, ResumeError
from understudy.corpus.secrets import Incidence, incidence, secret_finder
from understudy.ledger.store import RunStore
from understudy.methods.dp_kps import release as dp_kps_release
from understudy.methods.shared.evolution.embeddings import integer_vectors
from understudy.methods.shared.votes import VoteHistogram
from understudy.privacy.noise import SystemNoise
from understudy.run import door as measuring
from understudy.run import pipeline as running
from understudy.run.session import Listener
from understudy.run.settings import run_config
from understudy.text.vocabulary.terms import Vocabulary

pytestmark = pytest.mark.usefixtures("embedder", "varied_chat")
Table = list[dict[str, str]]
READING = "Reading the private records."
WHO = (*COLUMNS, "who")
SECRET = {"epsilon": None, "delta": None, "secret_prior": "1e-3", "secret_posterior": "1e-2"}


class Killed(BaseException):
    """The process ends."""


def release(values: Mapping[str, Any], **named: Any) -> us.Release:
    return running.release(run_config(values), **named).release


def stored(values: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Those of the noisy values that the run's folder holds."""
    with RunStore.open(Path(values["output"]) / "private", noise="system") as store:
        return [name for name in names if store.value(name) is not None]


def when_reading(change: Callable[[], object]) -> Listener:
    """Lets the files change after the checks and the charge, before the release reads."""
    return Listener(say=lambda line: change() if line == READING else None)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all noise that is drawn."""
    sizes: list[int] = []
    draw = SystemNoise.draw

    def counted(self: SystemNoise, *arguments: Any, **named: Any) -> Any:
        sizes.append(named["size"])
        return draw(self, *arguments, **named)

    monkeypatch.setattr(SystemNoise, "draw", counted)
    return sizes


@contextmanager
def at_call(owner: type, name: str, number: int, act: Callable[[], object]) -> Iterator[None]:
    """Do something before the ``number``-th call (from 1)."""
    whole, calls = getattr(owner, name), [0]

    def counted(*arguments: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == number:
            act()
        return whole(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, counted)
        yield


def kill() -> None:
    raise Killed


# -- a corpus that was read with other columns than the run names ------------------------------------------------------


def patients() -> Table:
    return [{**row, "who": f"patient {number % 20}"} for number, row in enumerate(rows())]


READ_WITH: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "no secrets column": ({}, {"secrets": "who"}, "other secrets columns"),
    "an extra secrets column": ({"secrets": ["who", "clinician"]}, {"secrets": "who"}, "other secrets columns"),
    "a secrets column that the run leaves out": (
        {"secrets": "who"},
        {"secrets": (), "secret_detectors": "email"},
        "other secrets columns",
    ),
    "another owner column": ({"owner": "clinician"}, {"owner": "who"}, "no owner column"),
}


def by_python(folder: Path, read: Mapping[str, Any], options: Mapping[str, Any]) -> us.Release:
    corpus = us.read_corpus(patients(), text="note", label="department", labels=LABELS, **read)
    owners = "owner" in options or "owner" in read
    budget = us.Budget("3", "1e-6") if owners else us.SecretBudget("1e-3", "1e-2")
    cap = "max_records_per_owner" if owners else "max_records_per_secret"
    method = us.AugPE(rounds=1, population=2, variations=2)
    more = {"dataset": "notes", "ledger": str(folder / "ledger.sqlite"), "llm": "fake", cap: 8, **options}
    return us.release(corpus, method, budget, **more)


@pytest.mark.parametrize("what", READ_WITH)
def test_a_corpus_that_was_read_with_other_columns_than_the_run_names_is_refused_before_any_charge(
    tmp_path: Path, drawn: list[int], what: str
) -> None:
    read, options, message = READ_WITH[what]
    with pytest.raises(ConfigError, match=message):
        by_python(tmp_path, read, options)
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    assert drawn == []


@pytest.mark.parametrize("options", [{}, {"secret_detectors": "email"}])
def test_a_corpus_that_was_read_with_its_secrets_column_protects_it(tmp_path: Path, options: dict[str, Any]) -> None:
    made = by_python(tmp_path, {"secrets": "who"}, options)
    assert "column who" in made.statement.unit.describe()
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


# -- between a kill and the resumed run --------------------------------------------------------------------------------

VOTES = ("votes-1", "votes-2")
NOT_THESE = "not those that this run began with"


def relabelled(table: Table) -> Table:
    return [{**row, "department": LABELS[0]} for row in table]


def of_one_owner(table: Table) -> Table:
    return [{**row, "clinician": "dr-X"} for row in table]


def of_one_patient(table: Table) -> Table:
    return [{**row, "who": f"patient {number % 5}"} for number, row in enumerate(table)]


OWNED = {"owner": "clinician", "max_records_per_owner": 3}
PATIENTS = {**SECRET, "secrets": "who", "max_records_per_secret": 8}
CORRECTED: dict[str, tuple[dict[str, Any], Callable[[Table], Table]]] = {
    "owners": (OWNED, of_one_owner),
    "labels": ({}, relabelled),
    "secrets": (PATIENTS, of_one_patient),
    "the texts": ({}, lambda table: [{**row, "note": row["note"].upper()} for row in table]),
    "a row more": (OWNED, lambda table: [*table, table[0]]),
}


@pytest.mark.parametrize("what", CORRECTED)
def test_an_evolution_whose_data_changed_after_it_was_killed_is_not_resumed_with_them(
    tmp_path: Path, drawn: list[int], what: str
) -> None:
    changes, correct = CORRECTED[what]
    write_csv(tmp_path / "notes.csv", patients(), WHO)
    values = evolving(tmp_path, **changes)
    with at_call(VoteHistogram, "of_batch", 2, kill), pytest.raises(Killed):
        release(values)
    assert (stored(values, VOTES), len(drawn)) == (["votes-1"], 1)
    write_csv(tmp_path / "notes.csv", correct(patients()), WHO)
    with at_call(VoteHistogram, "of_batch", 1, kill), pytest.raises(ResumeError, match=NOT_THESE):
        release(values)
    assert (stored(values, VOTES), len(drawn)) == (["votes-1"], 1)
    assert not list((tmp_path / "out" / "release").iterdir())
    write_csv(tmp_path / "notes.csv", patients(), WHO)
    assert [charge.name for charge in release(values).statement.charges] == list(VOTES)
    assert len(drawn) == 2
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize(("what", "call"), [("owners", 1), ("labels", 2)])
def test_keyphrases_whose_data_changed_after_a_kill_are_not_drawn_from_them(
    tmp_path: Path, drawn: list[int], what: str, call: int
) -> None:
    changes, correct = CORRECTED[what]
    values = settings(tmp_path, **changes)
    with at_call(measuring, "measure", call, kill), pytest.raises(Killed):
        release(values)
    names = ("vocabulary", "density")
    assert stored(values, names) == list(names[: call - 1])
    write_csv(tmp_path / "notes.csv", correct(rows()))
    with pytest.raises(ResumeError, match=NOT_THESE):
        release(values)
    assert (stored(values, names), len(drawn)) == (list(names[: call - 1]), call - 1)
    write_csv(tmp_path / "notes.csv", rows())
    release(values)
    assert len(drawn) == 2
    assert runs_charged(values["ledger"]) == 1


def test_counts_of_another_vocabulary_than_the_runs_are_not_read_by_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(tmp_path)
    with at_call(measuring, "measure", 2, kill), pytest.raises(Killed):
        release(values)
    with monkeypatch.context() as patch:
        other = Vocabulary.of(TERMS[::-1], source="terms.txt", stop_words=frozenset())
        patch.setattr(dp_kps_release, "public_vocabulary", lambda _parameters: other)
        with pytest.raises(ResumeError, match="vocabulary is not the one that this run began with"):
            release(values)
    release(values)
    assert runs_charged(values["ledger"]) == 1


def test_a_resumed_evolution_takes_the_same_rows_in_another_order(tmp_path: Path) -> None:
    values = evolving(tmp_path, **OWNED)
    with at_call(VoteHistogram, "of_batch", 2, kill), pytest.raises(Killed):
        release(values)
    write_csv(tmp_path / "notes.csv", rows()[::-1])
    release(values)
    assert runs_charged(values["ledger"]) == 1


# -- between the checks and the pass of the release --------------------------------------------------------------------


def grown(table: Table) -> Table:
    return [*table, *({**table[0], "note": f"{table[0]['note']} Again {number}."} for number in range(30))]


def newcomer(table: Table) -> Table:
    return [*table, *({**table[0], "clinician": "dr-new", "note": f"New {number}."} for number in range(30))]


IN_SECRET = {**SECRET, "secret_detectors": "email", "max_records_per_secret": 3}
GROWN: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Any], Callable[[Table], Table], tuple[str, ...]]] = {
    "aug-pe, copies with a secret": (evolving, IN_SECRET, grown, VOTES),
    "aug-pe, a new owner": (evolving, OWNED, newcomer, VOTES),
    "aug-pe, noisy labels first": (evolving, {"label_sizes": "noisy"}, relabelled, ("labels", *VOTES)),
    "sec-pe, copies with a secret, sampled": (protecting, {"inclusion": 0.5}, grown, ("clusters",)),
    "sec-pe, fewer": (protecting, {}, lambda table: table[:5], ("clusters",)),
    "dp-kps, more records": (settings, {}, grown, ("vocabulary", "density")),
    "a guide, a new owner": (evolving, {"method": "guided-evolution", **OWNED}, newcomer, ("guide",)),
}


@pytest.mark.parametrize("what", GROWN)
def test_data_that_change_between_the_checks_and_the_release_are_refused_before_any_noise(
    tmp_path: Path, drawn: list[int], what: str
) -> None:
    made_of, changes, change, names = GROWN[what]
    file = write_csv(tmp_path / "notes.csv", secret_rows())
    values = made_of(tmp_path, **changes)
    with pytest.raises(CorpusError, match="changed while the run was reading them"):
        release(values, listener=when_reading(lambda: write_csv(file, change(secret_rows()))))
    assert (drawn, stored(values, names)) == ([], [])
    assert not list((tmp_path / "out" / "release").iterdir())
    assert runs_charged(values["ledger"]) == 1  # what is charged stays so; the same command goes on
    write_csv(file, secret_rows())
    assert {charge.name for charge in release(values).statement.charges} == set(names)
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize(
    ("made_of", "changes", "names"),
    [
        (settings, {"guide": True, **OWNED}, ("vocabulary", "density", "guide")),
        (settings, OWNED, ("vocabulary", "density")),
        (protecting, {"releases": 2}, ("clusters-1", "clusters-2")),
    ],
    ids=["before the guide", "two passes", "two releases"],
)
def test_data_that_change_between_two_values_are_refused_before_the_second_s_noise(
    tmp_path: Path,
    drawn: list[int],
    made_of: Callable[..., dict[str, Any]],
    changes: dict[str, Any],
    names: tuple[str, ...],
) -> None:
    file = write_csv(tmp_path / "notes.csv", secret_rows())
    values = made_of(tmp_path, **changes)
    changing = at_call(measuring, "measure", len(names), lambda: write_csv(file, newcomer(secret_rows())))
    with changing, pytest.raises(CorpusError, match="changed while"):
        release(values)
    assert (len(drawn), stored(values, names)) == (len(names) - 1, list(names[:-1]))
    write_csv(file, secret_rows())
    assert [charge.name for charge in release(values).statement.charges] == list(names)
    assert runs_charged(values["ledger"]) == 1


# -- the incidence of secrets, where it is public ----------------------------------------------------------------------

FREE = {"public_corpus": None, "public_corpus_is_public": None, "records_without_secrets_are_public": True}


def half_secret() -> Table:
    """The first six records hold a secret each, the last six none."""
    return [
        {**row, "note": f"{row['note']} Write to u{number}@x.org." if number < 6 else row["note"]}
        for number, row in enumerate(rows(12))
    ]


@pytest.fixture
def with_incidence(tmp_path: Path) -> dict[str, Any]:
    """Settings with the table's incidence as a public file."""
    write_csv(tmp_path / "notes.csv", half_secret())
    corpus = us.read_corpus(tmp_path / "notes.csv", text="note", label="department", labels=LABELS)
    incidence(corpus, secret_finder(corpus, detectors=["email"])).write(tmp_path / "incidence.parquet")
    public = {"incidence": "public", "incidence_file": str(tmp_path / "incidence.parquet")}
    return protecting(tmp_path, **public, max_records_per_secret=1, clusters=6)


def other_way_round() -> Incidence:
    """Of the same shape: the first six records are the free ones."""
    return Incidence(12, 6, np.arange(6, 12), np.arange(6))


@pytest.mark.parametrize("changes", [{}, FREE], ids=["a public corpus", "free records are public"])
def test_an_incidence_file_that_is_swapped_after_its_check_is_refused_and_no_centre_released(
    tmp_path: Path, with_incidence: dict[str, Any], drawn: list[int], changes: dict[str, Any]
) -> None:
    values = {name: value for name, value in {**with_incidence, **changes}.items() if value is not None}
    file = tmp_path / "incidence.parquet"
    shutil.copy(file, tmp_path / "aside")
    with pytest.raises(ConfigError, match="incidence file changed"):
        release(values, listener=when_reading(lambda: other_way_round().write(file)))
    assert (drawn, stored(values, ("public-clusters", "clusters"))) == ([], [])
    assert not list((tmp_path / "out" / "release").iterdir())
    shutil.copy(tmp_path / "aside", file)
    made = release(values)
    vectors = integer_vectors(WordEmbedder().embed([row["note"] for row in half_secret()]))
    shown = [bool((made.arrays["public_centres"][0] == vector).all(axis=1).any()) for vector in vectors]
    assert shown[:6] == [False] * 6
    assert any(shown[6:]) == bool(changes)
    assert runs_charged(values["ledger"]) == 1


def test_rows_that_are_put_in_another_order_after_the_incidence_was_checked_are_refused(
    tmp_path: Path, with_incidence: dict[str, Any], drawn: list[int]
) -> None:
    """The same rows, but the file says by their places which hold a secret."""
    values = {name: value for name, value in {**with_incidence, **FREE}.items() if value is not None}
    file = tmp_path / "notes.csv"
    with pytest.raises(CorpusError, match="changed while the run was reading them"):
        release(values, listener=when_reading(lambda: write_csv(file, half_secret()[::-1])))
    assert (drawn, stored(values, ("clusters",))) == ([], [])  # public clusters are of the rows that were checked
    with pytest.raises(CorpusError, match="does not have the incidence"):
        release(values)
    write_csv(file, half_secret())
    release(values)
    assert runs_charged(values["ledger"]) == 1


def test_the_statement_has_the_promises_that_were_planned_for_whatever_the_file_says_later(
    tmp_path: Path, with_incidence: dict[str, Any]
) -> None:
    file = tmp_path / "stricter.csv"
    file.write_text("number,prior,posterior\n3,1e-3,2e-3\n", "utf-8")

    def change() -> None:
        file.write_text("number,prior,posterior\n0,1e-3,1.1e-3\n4,1e-3,1.1e-3\n", "utf-8")

    values = {**with_incidence, "secret_budgets": str(file), "ledger": str(tmp_path / "ledger.sqlite")}
    made = release(values, listener=when_reading(change))
    (note,) = made.statement.notes
    assert note.startswith("(p=0.001, r=0.002)")
    assert note.endswith("file: 3.")
    file.write_text("number,prior,posterior\n3,1e-3,2e-3\n", "utf-8")
    untouched = release({**values, "output": str(tmp_path / "other"), "ledger": str(tmp_path / "other.sqlite")})
    assert made.statement.charges == untouched.statement.charges


# -- what lies in the private folder meanwhile -------------------------------------------------------------------------


def private(values: Mapping[str, Any]) -> set[str]:
    return {path.name for path in (Path(values["output"]) / "private").iterdir()}


@pytest.mark.parametrize("fresh", [False, True], ids=["resumed", "another method"])
def test_private_embeddings_that_a_killed_run_left_are_gone_after_the_next(tmp_path: Path, fresh: bool) -> None:
    values = evolving(tmp_path)
    with at_call(VoteHistogram, "of_batch", 2, kill), pytest.raises(Killed):
        release(values)
    scratch = tmp_path / "out" / "private" / "scratch"
    assert [path.name for path in scratch.rglob("*.bin")] == ["embeddings.bin"]
    assert scratch.stat().st_mode & 0o777 == 0o700
    release(settings(tmp_path, fresh=True, insecure_no_noise=True) if fresh else values)
    assert "scratch" not in private(values)
    assert runs_charged(values["ledger"]) == 1


def test_private_embeddings_are_gone_also_where_the_run_was_killed_before_their_removal(tmp_path: Path) -> None:
    from understudy.run.session import Session

    values = evolving(tmp_path)
    with at_call(Session, "clear_scratch", 2, kill), pytest.raises(Killed):
        release(values)  # the first clears what a run that was set aside may have left
    assert "scratch" in private(values)
    release(values)
    assert "scratch" not in private(values)
    assert runs_charged(values["ledger"]) == 1


# -- what was public ---------------------------------------------------------------------------------------------------


def test_a_public_corpus_that_is_no_one_file_is_refused_before_any_charge(tmp_path: Path) -> None:
    for pattern in ("publ*.csv", "public.cs?", "."):
        with pytest.raises(ConfigError, match=r"There is no public corpus .* path of one file"):
            release(protecting(tmp_path, public_corpus=str(tmp_path / pattern)))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


def test_the_statement_of_an_evolution_names_all_that_the_language_model_was_shown(tmp_path: Path) -> None:
    assert release(evolving(tmp_path)).statement.public_inputs.keys() == {"embedder", "language model", "prompts"}
    (tmp_path / "keywords.txt").write_text("heart\nskin\n", "utf-8")
    shown = {
        **{"keywords": str(tmp_path / "keywords.txt"), "keywords_are_public": True},
        "prompt": prompt_file(tmp_path, examples=[public_rows()[0]["note"]]),
    }
    own = {"output": str(tmp_path / "more"), "ledger": str(tmp_path / "more.sqlite")}
    made = release(evolving(tmp_path, **own, **shown))
    found = made.statement.public_inputs
    assert found.keys() == {"embedder", "language model", "prompts", "keywords"}
    assert found["language model"]["source"] == "fake:chat"
    assert found["keywords"]["source"] == "keywords.txt"
    assert all(len(found[name]["sha256"]) == 64 for name in ("prompts", "keywords"))
    words = made.statement.to_markdown()
    assert "language model: fake:chat" in words
    assert found["prompts"]["sha256"] in words
    assert str(tmp_path) not in words
