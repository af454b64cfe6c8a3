"""A run of a table most of whose rows cannot be used is refused before it is charged, and tells no more than that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import flags, rows, settings, write_csv
from run_fixtures import Said, runs_charged

import understudy as us
from understudy.base.errors import ConfigError, CorpusError, in_keywords
from understudy.ledger import Ledger
from understudy.run import pipeline as running
from understudy.run.outputs import OutputFolder
from understudy.run.settings import run_config

REFUSED = "More of the rows cannot be used than --max-bad-rows allows"
BUDGET = us.Budget(3, "1e-6")


def datasets(values: dict[str, Any]) -> list[str]:
    with Ledger(values["ledger"]) as ledger:
        return [dataset.name for dataset in ledger.datasets()]


def with_bad_rows(folder: Path, bad: int, good: int = 38, **changes: Any) -> dict[str, Any]:
    """Settings of a table of which ``bad`` rows have no text."""
    write_csv(folder / "notes.csv", [*rows(good), *({**row, "note": ""} for row in rows(bad))])
    return settings(folder, **{"max_bad_rows": 0.05, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "release"])
def test_a_table_in_another_format_than_declared_is_refused_before_the_charge(
    tmp_path: Path, understudy: Callable[..., Said], verb: str
) -> None:
    """Dates as 02.02.2024 and decimal commas, in every row but two."""
    table = [f"{row['note']};{row['department']};02.02.2024;{n},50" for n, row in enumerate(rows())]
    table[:2] = [re.sub(r";02.02.2024;(\d+),", r";2024-02-02;\1.", row) for row in table[:2]]
    (tmp_path / "export.csv").write_text("\n".join(["note;department;day;paid", *table]) + "\n", "utf-8")
    values = settings(tmp_path, data=str(tmp_path / "export.csv"), delimiter=";", max_bad_rows=0.05)
    values["columns"] = "day=2024-01-01..2024-12-31/12; paid=0.0..60.0/12"
    if verb == "release":
        del values["llm"], values["records_per_label"]
    said = understudy(verb, *flags(values))
    assert said.code == 3
    assert REFUSED in said.err
    assert not re.search(r"\d", said.err.partition(REFUSED)[2].replace(str(tmp_path), ""))
    assert datasets(values) == []
    assert not list((tmp_path / "out").glob("release/*"))
    counts = json.loads((tmp_path / "out" / "private" / "skipped_rows.json").read_text())
    assert counts["skipped"] == 38
    values["max_bad_rows"] = 1  # the twin without the check: it is charged for noise
    understudy(verb, *flags(values))
    assert runs_charged(values["ledger"], "export") == 1


@pytest.mark.parametrize(("bad", "refused"), [(2, False), (3, True)])
def test_the_declared_share_itself_may_be_skipped(tmp_path: Path, bad: int, refused: bool) -> None:
    values = with_bad_rows(tmp_path, bad, max_bad_rows=2 / 40)
    if refused:
        with pytest.raises(CorpusError, match=in_keywords(REFUSED)):
            running.run(run_config(values))
    else:
        running.run(run_config(values))
    assert datasets(values) == ([] if refused else ["notes"])


TURNS = [{"role": "clinician", "content": "fever"}, {"role": "patient", "content": "heart"}]


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("form", ["notes", "dialogues"])
def test_tables_in_memory_and_open_ones_are_refused_as_well(tmp_path: Path, form: str, opened: bool) -> None:
    texts: list[Any] = ["fever", "heart", "", ""] if form == "notes" else [TURNS, TURNS, "[]", "[]"]
    read: dict[str, Any] = {"text": "note"}
    read |= {} if form == "notes" else {"roles": "clinician,patient"}
    table: Any = [{"note": text} for text in texts]
    (tmp_path / "terms.txt").write_text("fever\nheart", "utf-8")
    method = us.DPKPS(vocabulary=str(tmp_path / "terms.txt"), vocabulary_is_public=True, length=1, bandwidth=0)
    options: dict[str, Any] = {"dataset": "d", "ledger": str(tmp_path / "ledger.sqlite")}

    def release(share: float) -> None:
        if opened:
            roles = {} if form == "notes" else {"roles": read["roles"]}
            us.release(us.read_corpus(table, **read, max_bad_rows=share), method, BUDGET, **options, **roles)
        else:
            us.release(table, method, BUDGET, **read, max_bad_rows=share, **options)

    with pytest.raises(CorpusError, match=in_keywords(REFUSED)) as caught:
        release(0.2)
    assert "private" not in str(caught.value)  # there is no such folder
    assert datasets(options) == []
    release(0.5)
    assert runs_charged(options["ledger"], "d") == 1


def test_a_run_that_was_charged_resumes_whatever_share_is_declared_now(tmp_path: Path) -> None:
    values = with_bad_rows(tmp_path, 10, max_bad_rows=0.5)
    running.release(run_config(values))
    for share in (0.5, 0.01):
        (tmp_path / "out" / "release" / "dp-kps.release").unlink()
        running.release(run_config({**values, "max_bad_rows": share}))
        assert runs_charged(values["ledger"]) == 1


def test_whoever_resumes_says_again_what_may_be_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = with_bad_rows(tmp_path, 2)
    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "write_release", killed)
        with pytest.raises(KeyboardInterrupt):
            running.release(run_config(values))
    del values["max_bad_rows"]
    with pytest.raises(CorpusError, match="A row"):
        running.release(run_config(values))
    assert runs_charged(values["ledger"]) == 1


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_with_error_the_first_bad_row_ends_the_run_as_ever(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="A row has an empty text"):
        running.run(run_config(with_bad_rows(tmp_path, 1, max_bad_rows=0)))


@pytest.mark.parametrize("share", [-0.01, 1.01, float("nan")])
def test_a_share_is_from_0_to_1(share: float) -> None:
    with pytest.raises(ConfigError, match="max_bad_rows"):
        run_config({"max_bad_rows": share})
    with pytest.raises(ConfigError, match="max_bad_rows"):
        us.read_corpus([{"note": "a"}], text="note", max_bad_rows=share)


def test_the_statement_says_that_a_refusal_is_not_covered(tmp_path: Path) -> None:
    made = running.release(run_config(settings(tmp_path)))
    assert "too many rows that cannot be used" in made.release.statement.to_markdown()
