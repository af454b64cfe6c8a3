"""Canaries: their own units and terms, their coins, and the copy of the corpus in which they are."""

from __future__ import annotations

import json
import stat
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from understudy.audit.canaries import (
    CORPUS,
    Canaries,
    choose_canaries,
    load_canaries,
    make_canaries,
    on_the_copy,
    plant,
    vocabulary_of,
)
from understudy.base.errors import ConfigError, CorpusError, ResumeError
from understudy.base.labels import Label
from understudy.corpus.secrets import records_per_secret, secret_finder
from understudy.run.job import Job
from understudy.run.parts import Table
from understudy.run.settings import RunConfig, run_config
from understudy.text.vocabulary.words import TermMatcher

RARE = [f"zq{a}{b}{c}" for a in "abcdef" for b in "abcdefghij" for c in "abcdefghij"]
TEXTS = ["Chest pain since Monday, pulse fast", "A rash on both ankles", "Pulse normal, no chest pain at all"]


def canaries(count: int = 100, per_canary: int = 3) -> Canaries:
    prefixes: list[tuple[str, Label | None]] = [("A rash", "skin"), ("Pulse fast", "heart")]
    return make_canaries(count, terms=RARE, taken=frozenset(), per_canary=per_canary, prefixes=prefixes)


def config(folder: Path, **changes: Any) -> RunConfig:
    folder.mkdir(exist_ok=True)
    (folder / "terms.txt").write_text("\n".join(["chest pain", "rash", "pulse", *RARE]), "utf-8")
    rows = [
        {"note": text, "label": number % 2, "who": number, "age": 40 + number, "names": [f"Ann {number}"]}
        for number, text in enumerate(TEXTS)
    ]
    (folder / "notes.jsonl").write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    values = {
        "data": str(folder / "notes.jsonl"),
        "text": "note",
        "epsilon": 2,
        "delta": "1e-6",
        "vocabulary": str(folder / "terms.txt"),
        "vocabulary_is_public": True,
        "output": str(folder / "out"),
        **changes,
    }
    return run_config({name: value for name, value in values.items() if value is not None})


def planted(folder: Path, **changes: Any) -> tuple[Canaries, list[dict[str, Any]], RunConfig]:
    """The canaries, the rows of the copy, and the configuration on it."""
    settings = config(folder, **changes)
    job = Job(settings)
    with job.table.open(folder) as corpus:
        finder = job.table.finder(corpus) if job.promise.unit.kind == "secret" else None
        terms = vocabulary_of(job.method).terms
        made = choose_canaries(corpus, terms, finder=finder, count=60, prefix_words=2, suffix_terms=3)
        plant(job.table, job.promise.unit, corpus, made, folder)
    rows = [json.loads(line) for line in (folder / CORPUS).read_text("utf-8").splitlines()]
    return made, rows, on_the_copy(settings, folder)


def test_no_two_canaries_share_a_term_or_a_name() -> None:
    made = canaries()
    terms = Counter(term for canary in made for term in canary.terms)
    assert set(terms.values()) == {1}
    assert len(terms) == 300
    assert len({canary.name for canary in made}) == 100


def test_coins_are_fair_and_fresh() -> None:
    first, second = canaries(200, 1).planted, canaries(200, 1).planted
    assert 60 < first.sum() < 140  # but for a chance of 1e-8
    assert (first != second).any()


def test_a_canary_begins_with_its_prefix_and_ends_in_its_terms() -> None:
    canary = next(iter(canaries()))
    assert canary.text == f"A rash {' '.join(canary.terms)}"
    assert canary.label == "skin"


def test_terms_that_read_as_others_side_by_side_are_not_used() -> None:
    terms = ["pain", "chest", *(f"chest {word}" for word in RARE[:100]), *RARE[:100]]
    made = make_canaries(25, terms=terms, taken=frozenset(), per_canary=3, prefixes=[("", None)])
    matcher = TermMatcher(terms)
    for canary in made:
        assert [terms[index] for index in matcher.find(canary.text)] == list(canary.terms)


def test_too_small_a_vocabulary_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match=r"too few terms .* 100 canaries of 7 terms"):
        canaries(100, 7)


def test_neither_a_canary_nor_all_of_them_show_themselves() -> None:
    made = canaries(3)
    shown = repr(made) + repr(next(iter(made)))
    assert not any(term in shown for canary in made for term in canary.terms)
    assert "rash" not in shown


def test_canaries_are_kept_for_their_owner_alone_and_read_again(tmp_path: Path) -> None:
    made = canaries()
    made.save(tmp_path / "c.json", settings="abc")
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == 0o600
    assert load_canaries(tmp_path / "c.json", settings="abc") == made


def test_canaries_of_other_settings_or_damaged_ones_are_refused(tmp_path: Path) -> None:
    canaries().save(tmp_path / "c.json", settings="abc")
    with pytest.raises(ResumeError, match="other settings"):
        load_canaries(tmp_path / "c.json", settings="abd")
    (tmp_path / "c.json").write_text('{"settings": "abc", "canaries": [{"name": "x"}]}')
    with pytest.raises(ResumeError, match="cannot be read"):
        load_canaries(tmp_path / "c.json", settings="abc")


def test_the_copy_holds_all_records_and_those_canaries_whose_coin_says_so(tmp_path: Path) -> None:
    made, rows, _ = planted(tmp_path)
    assert [row["note"] for row in rows] == [*TEXTS, *(canary.text for canary in made if canary.planted)]
    assert stat.S_IMODE((tmp_path / CORPUS).stat().st_mode) == 0o600


def test_prefixes_are_of_records_and_no_suffix_is_in_the_corpus(tmp_path: Path) -> None:
    made, _, _ = planted(tmp_path)
    assert {canary.prefix for canary in made} == {"Chest pain", "A rash", "Pulse normal,"}
    assert not {"chest pain", "rash", "pulse"} & {term for canary in made for term in canary.terms}


def test_labels_keep_their_type_and_come_with_the_prefix(tmp_path: Path) -> None:
    made, rows, _ = planted(tmp_path, label="label", labels="0,1")
    assert {(canary.prefix, canary.label) for canary in made} == {
        ("Chest pain", 0),
        ("A rash", 1),
        ("Pulse normal,", 0),
    }
    assert {type(row["label"]) for row in rows} == {int}


def test_every_canary_is_an_owner_of_its_own(tmp_path: Path) -> None:
    made, rows, settings = planted(tmp_path, owner="who")
    owners = Counter(row["who"] for row in rows)
    assert set(owners.values()) == {1}
    assert set(owners) == {"0", "1", "2", *(canary.name for canary in made if canary.planted)}
    assert settings.unit.kind == "owner"


def test_every_canary_is_a_secret_of_its_own_in_as_many_records_as_may_hold_one(tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("Ann 7\n", "utf-8")
    made, rows, settings = planted(
        tmp_path / "in",
        epsilon=None,
        delta=None,
        method="aug-pe",
        vocabulary=None,
        vocabulary_is_public=None,
        secrets="names",
        secrets_file=str(tmp_path / "secrets.txt"),
        secret_prior="1e-3",
        secret_posterior="1e-2",
        max_records_per_secret=3,
    )
    with Table.of(settings).open(tmp_path) as corpus:
        finder = secret_finder(corpus, file=settings.secrets_file)
        counts = records_per_secret(corpus, finder)
    assert {counts[finder.key(canary.suffix)] for canary in made if canary.planted} == {3}
    assert not any(finder.key(canary.suffix) in counts for canary in made if not canary.planted)
    assert finder.find("Ann 7 was here") == {finder.key("ann 7")}
    assert len(rows) == 3 + 3 * made.planted.sum()


def test_no_prefix_holds_a_secret_of_another(tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("chest\n", "utf-8")
    made, *_ = planted(
        tmp_path / "in",
        epsilon=None,
        delta=None,
        method="aug-pe",
        vocabulary=None,
        vocabulary_is_public=None,
        secrets_file=str(tmp_path / "secrets.txt"),
        secret_prior="1e-3",
        secret_posterior="1e-2",
        max_records_per_secret=2,
    )
    assert {canary.prefix for canary in made} == {"", "A rash", "Pulse normal,"}


def test_a_record_of_several_columns_gets_the_canary_in_its_last_one(tmp_path: Path) -> None:
    made, rows, _ = planted(tmp_path, text=None, record_columns="age,note")
    assert rows[0] == {"age": 40, "note": TEXTS[0]}
    assert [row["note"] for row in rows[3:]] == [canary.text for canary in made if canary.planted]


def test_the_run_on_the_copy_has_a_ledger_and_a_folder_of_its_own(tmp_path: Path) -> None:
    *_, settings = planted(tmp_path, ledger="theirs.sqlite", dataset="theirs", fresh=True)
    assert Path(settings.ledger or "").parent == Path(settings.output or "").parent == tmp_path
    assert (settings.dataset, settings.fresh, settings.data) == ("audit", False, (str(tmp_path / CORPUS),))


def test_a_table_without_a_record_is_an_error(tmp_path: Path) -> None:
    settings = config(tmp_path, max_bad_rows=0.05, label="kind", labels="a")
    (tmp_path / "notes.jsonl").write_text('{"note": "x", "kind": "b"}\n', "utf-8")
    with Table.of(settings).open(tmp_path) as corpus, pytest.raises(CorpusError, match="no record"):
        choose_canaries(corpus, RARE, count=5, prefix_words=2, suffix_terms=3)


def test_canaries_among_texts_that_have_parts_are_rows_of_these(tmp_path: Path) -> None:
    talks = [
        {"messages": [{"role": "a", "content": f"Hello {number}"}], "subject": "S", "body": None} for number in range(9)
    ]
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, talks)), "utf-8")
    for settings in ({"text": "messages", "roles": "a,b"}, {"text": "subject,body"}):
        made, rows, _ = planted(tmp_path, data=str(tmp_path / "talks.jsonl"), **settings)
        texts = {canary.text for canary in made.all if canary.planted}
        assert len(rows) == len(talks) + len(texts)
        own = rows[len(talks) :]
        said = {row["messages"][0]["content"] if "roles" in settings else row["body"] for row in own}
        assert said == texts
        assert not any("a:" in text or "subject" in text for text in texts)
