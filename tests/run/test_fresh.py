"""What stands in ``release/`` belongs together: no table of an earlier run under a later statement."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clinic import FakeChat, in_format, settings
from run_fixtures import UseChat, release, run, runs_charged, stops_after_the_charge

from understudy.base.errors import BudgetExceeded, ResumeError, UnderstudyError
from understudy.ledger import Ledger
from understudy.methods.registry import load_release
from understudy.models.types import ChatRequest, Completion
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.unit import Unit
from understudy.release.statement import NOT_PRIVATE
from understudy.run import pipeline as running
from understudy.run.outputs import OutputFolder


class Stop(BaseException):
    """The process is killed."""


def kill(_: ChatRequest) -> Completion:
    raise Stop


def shareable(values: dict[str, Any]) -> set[str]:
    return {path.name for path in (Path(values["output"]) / "release").iterdir()}


STATEMENT = {"dp-kps.release", "statement.json", "statement.md"}
TABLE = {"schema.json", "synthetic.parquet", "synthetic.csv", "provenance.parquet"}


@pytest.mark.parametrize("output_format", ["csv", "jsonl"])
def test_a_new_run_leaves_no_table_of_an_earlier_one(tmp_path: Path, output_format: str) -> None:
    """Fresh, in another format, or where the private half was lost."""
    values = settings(tmp_path)
    run(values, insecure_no_noise=True)
    in_format(values, output_format)
    assert shareable(values) == {*STATEMENT, "schema.json", "provenance.parquet", f"synthetic.{output_format}"}
    if output_format == "csv":
        run(values, fresh=True)
        assert shareable(values) == {*STATEMENT, *TABLE}
        return
    for path in (tmp_path / "out" / "private").iterdir():
        path.unlink()
    release(values)
    assert shareable(values) == STATEMENT
    assert NOT_PRIVATE not in (tmp_path / "out" / "release" / "statement.md").read_text("utf-8")


def test_a_fresh_run_killed_while_the_model_writes_leaves_no_older_table(tmp_path: Path, use_chat: UseChat) -> None:
    values = settings(tmp_path, llm="fake")
    use_chat(FakeChat())
    run(values, insecure_no_noise=True)
    use_chat(FakeChat(kill))
    with pytest.raises(Stop):
        run(values, fresh=True)
    assert shareable(values) == STATEMENT


def test_halves_of_files_that_a_killed_run_left_are_removed(tmp_path: Path) -> None:
    values = settings(tmp_path)
    folder = tmp_path / "out" / "release"
    folder.mkdir(parents=True)
    for name in (".synthetic.csv.00ff00ff.tmp", ".statement.md.00ff00ff.tmp", ".dp-kps.release.00ff00ff.tmp"):
        (folder / name).write_text("half", "utf-8")
    (folder / "mine.txt").write_text("kept", "utf-8")
    run(values)
    assert shareable(values) == {*STATEMENT, *TABLE, "mine.txt"}


def test_a_fresh_run_that_is_refused_leaves_the_paid_one_to_go_on(
    tmp_path: Path, finished: Callable[..., dict[str, Any]]
) -> None:
    values = finished(tmp_path)
    first, before = run(values).release.digest, shareable(values)
    refusals = ({"data": "misspelt.csv"}, {"epsilon": 9}, {"llm": "openai:x", "base_url": "http://127.0.0.1:9/v1"}, {})
    for refused in refusals:
        with pytest.raises(UnderstudyError):
            run(values, fresh=True, dataset="notes", **refused)
        assert shareable(values) == before
    with pytest.raises(ResumeError, match="NOT PRIVATE must not replace"):
        run(values, insecure_no_noise=True)
    assert run(values).release.digest == first
    assert runs_charged(values["ledger"]) == 1


def overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run spends what is left immediately before the next one's charge."""
    whole = Ledger.charge

    def charge(ledger: Ledger, name: str, plan: Plan, **named: Any) -> Receipt:
        whole(ledger, name, plan, run_id="somebody else's")
        return whole(ledger, name, plan, **named)

    monkeypatch.setattr(Ledger, "charge", charge)


def test_a_fresh_run_that_is_overtaken_at_the_charge_leaves_the_paid_one_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(tmp_path)
    with Ledger(values["ledger"]) as ledger:
        ledger.open_dataset("notes", cap=Budget(7, "1e-5"), unit=Unit())
    with stops_after_the_charge(monkeypatch):
        run(values)
    overtake(monkeypatch)
    with pytest.raises(BudgetExceeded):
        run(values, fresh=True)
    monkeypatch.undo()
    run(values)
    assert runs_charged(values["ledger"]) == 2


def test_a_first_run_overtaken_at_the_charge_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overtake(monkeypatch)
    with pytest.raises(BudgetExceeded):
        run(settings(tmp_path))
    assert not (tmp_path / "out").exists()


def test_generating_anew_that_is_refused_leaves_what_was_generated(tmp_path: Path) -> None:
    values = settings(tmp_path, records_per_label=None)
    made = release(values)
    output = tmp_path / "generated"
    running.generate(made, llm="none", records=4, output=output)
    before = {path.name: path.read_bytes() for path in (output / "release").iterdir()}
    with pytest.raises(UnderstudyError):
        running.generate(made, llm="openai:x", base_url="http://127.0.0.1:9/v1", records=4, output=output, fresh=True)
    assert {path.name: path.read_bytes() for path in (output / "release").iterdir()} == before
    running.generate(made, llm="none", records=4, output=output)


def test_generating_anew_that_is_killed_as_it_begins_leaves_no_older_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noiseless = settings(tmp_path, insecure_no_noise=True, output=str(tmp_path / "noiseless"))
    run(noiseless)
    in_format(noiseless, "csv")
    made = release(settings(tmp_path, records_per_label=None))
    options: dict[str, Any] = {"llm": "none", "records": 4, "output": noiseless["output"]}

    def stop(*_: object, **__: object) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(OutputFolder, "clear", stop)
        with pytest.raises(Stop):
            running.generate(made, **options, fresh=True)
    running.generate(made, **options)
    assert shareable(noiseless) == {*TABLE, "statement.json", "statement.md"}


def test_generating_anew_leaves_no_older_table_and_keeps_its_release(tmp_path: Path, use_chat: UseChat) -> None:
    noiseless = settings(tmp_path, insecure_no_noise=True, output=str(tmp_path / "noiseless"))
    run(noiseless)
    in_format(noiseless, "csv")
    private = settings(tmp_path, records_per_label=None)
    made = release(private)
    use_chat(FakeChat(kill))
    with pytest.raises(Stop):
        running.generate(made, llm="fake", records=4, output=noiseless["output"], fresh=True)
    assert shareable(noiseless) == {"statement.json", "statement.md"}
    running.generate(made, llm="none", records=4, output=private["output"], fresh=True)
    assert shareable(private) == {*STATEMENT, *TABLE}
    assert load_release(tmp_path / "out" / "release" / "dp-kps.release").digest == made.digest


def test_generating_never_removes_a_release_that_was_paid_for(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with Ledger(values["ledger"]) as ledger:
        ledger.open_dataset("notes", cap=Budget(10, "1e-5"), unit=Unit())
    run(values)
    made = release(values, records_per_label=None, output=str(tmp_path / "paid"))
    before = {path: path.read_bytes() for path in (tmp_path / "out" / "release").iterdir()}
    for fresh in (False, True):
        with pytest.raises(ResumeError, match=r"another Release, .* which was paid for") as caught:
            running.generate(made, llm="none", records=4, output=tmp_path / "out", fresh=fresh)
        assert caught.value.cure == "Name another folder with --output."
    (tmp_path / "out" / "release" / "dp-kps.release").write_bytes(b"of a later version")
    with pytest.raises(ResumeError, match="another Release"):
        running.generate(made, llm="none", records=4, output=tmp_path / "out")
    before.pop(tmp_path / "out" / "release" / "dp-kps.release")
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(ResumeError, match="contains a run that was charged") as caught:
        running.generate(made, llm="none", records=4, output=tmp_path / "paid")
    assert caught.value.cure == "Name another folder with --output."


def test_a_statement_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = settings(tmp_path)
    result = run(values)
    assert result.folder is not None
    before = {path.name: path.read_bytes() for path in result.folder.shareable.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="disk full"):
        result.folder.write_statement(replace(result.statement, sealed=None), labelled=True)
    assert {path.name: path.read_bytes() for path in result.folder.shareable.iterdir()} == before


def test_every_record_names_its_release_and_carries_the_stamp_where_noise_was_off(tmp_path: Path) -> None:
    values = settings(tmp_path, output=None)
    for changes, stamp in [
        ({}, None),
        ({"insecure_no_noise": True}, NOT_PRIVATE),
        ({"insecure_noise_seed": 1}, NOT_PRIVATE),
    ]:
        made = run(values, **changes)
        for line in made.provenance["provenance"]:
            provenance = json.loads(str(line))
            assert provenance["release"] == made.release.digest[:12]
            assert provenance.get("stamp") == stamp
