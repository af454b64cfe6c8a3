"""The same command and folder resume; anything else that would change a begun run is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from clinic import TERMS, FakeChat, flags, prompt_file, rows, settings, write_csv
from run_fixtures import EDITS, Command, UseChat, run, runs_charged, stops_after_the_charge
from server import FakeEndpoint, answer, error

from understudy.base.errors import (
    BudgetExceeded,
    ConfigError,
    CorpusError,
    LedgerError,
    ModelError,
    PrivacyError,
    ResumeError,
)
from understudy.ledger import Ledger
from understudy.methods.registry import load_release
from understudy.models.types import ChatRequest, Completion
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit
from understudy.release import Release
from understudy.release.statement import Statement
from understudy.run import generating
from understudy.run import pipeline as running
from understudy.run.forecast import forecast
from understudy.run.settings import run_config


def test_a_finished_run_is_not_charged_or_read_again(tmp_path: Path, finished: Callable[..., dict[str, Any]]) -> None:
    values = finished(tmp_path)
    first = run(values)
    (tmp_path / "notes.csv").unlink()
    (tmp_path / "out" / "release" / "synthetic.parquet").unlink()
    assert run(values).columns == first.columns
    assert (tmp_path / "out" / "release" / "synthetic.parquet").exists()
    with pytest.raises(ResumeError, match="length: 3 became 4"):
        run(values, length=4)
    with pytest.raises(BudgetExceeded, match="no epsilon remains"):  # before the private file is opened
        run(values, output=str(tmp_path / "second"))
    file = tmp_path / "out" / "release" / "dp-kps.release"
    before = file.read_bytes()
    file.unlink()
    settings(tmp_path)  # writes the table again
    run(values)
    assert file.read_bytes() == before, "made again from the stored values"
    assert runs_charged(values["ledger"]) == 1


def test_a_finished_run_is_not_for_another_table(tmp_path: Path, finished: Callable[..., dict[str, Any]]) -> None:
    values = finished(tmp_path)
    other = (tmp_path / "notes.csv").rename(tmp_path / "letters.csv")
    with pytest.raises(ResumeError, match=r"dataset 'notes', and this command names 'letters'.*dataset notes"):
        run(values, data=str(other))
    run(values, data=str(other), dataset="notes")  # the same table, renamed
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_release_is_not_taken_for_the_one_that_was_made(
    tmp_path: Path, finished: Callable[..., dict[str, Any]], edit: Callable[[Path], Statement]
) -> None:
    values = finished(tmp_path)
    file = tmp_path / "out" / "release" / "dp-kps.release"
    before = file.read_bytes()
    edit(file)
    with pytest.raises(PrivacyError, match=r"not the one that this run made\. Delete it"):
        run(values)
    file.unlink()
    run(values)
    assert file.read_bytes() == before
    assert runs_charged(values["ledger"]) == 1


CHANGED = {
    "epsilon": "2",
    "delta": "1e-7",
    "labels": "cardiology,dermatology,other",
    "top_terms": 9,
    "length": 4,
    "noise": "laplace",
    "seed": 1,
    "owner": "clinician",
}


def test_a_changed_setting_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = settings(tmp_path)
    with stops_after_the_charge(monkeypatch):
        run(values)
    for name, value in CHANGED.items():
        with pytest.raises(ResumeError, match=f"{name}: .* became"):
            run(values, **{name: value})
    assert runs_charged(values["ledger"]) == 1
    run(values)
    assert runs_charged(values["ledger"]) == 1


@pytest.mark.parametrize("name", ["vocabulary", "stop_words"])
def test_a_public_file_that_changed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "stop.txt").write_text("the", "utf-8")
    values = settings(tmp_path, stop_words=str(tmp_path / "stop.txt"))
    with stops_after_the_charge(monkeypatch):
        run(values)
    file = Path(values[name])
    before = file.read_text("utf-8")
    file.write_text(before + "\n", "utf-8")
    with pytest.raises(ResumeError, match=rf"\(content of files: {name}\)"):
        run(values)
    file.write_text(before, "utf-8")
    run(values)


def test_operational_settings_may_change(tmp_path: Path, use_chat: UseChat) -> None:
    use_chat(FakeChat())
    values = settings(tmp_path, llm="fake")
    run(values)
    (tmp_path / "notes.csv").rename(tmp_path / "moved.csv")
    changes: dict[str, Any] = {"spending_cap": 10_000, "price_input": 1.0, "price_output": 1.0, "expected_records": 9}
    run(values, **changes, data=str(tmp_path / "moved.csv"), dataset="notes", api_key_env="A_KEY")
    assert runs_charged(values["ledger"]) == 1


def test_a_run_goes_on_with_the_noise_that_it_was_charged_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version or processor computes other last digits, or a thousandth more; the ledger knows one of them."""
    values = settings(tmp_path)
    with stops_after_the_charge(monkeypatch):
        run(values)
    charged = forecast(run_config(values)).plan.charges
    more = [1.001 * each for each in gaussian_split(Budget(values["epsilon"], values["delta"]), [1.0, 1.0])]
    monkeypatch.setattr("understudy.privacy.plan.gaussian_split", lambda _budget, shares: more[: len(shares)])
    assert forecast(run_config(values)).plan.charges != charged
    assert run(values).release.statement.charges == charged
    assert runs_charged(values["ledger"]) == 1


def test_a_moved_ledger_is_the_same_and_another_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = settings(tmp_path)
    with stops_after_the_charge(monkeypatch):
        run(values)
    with pytest.raises(ResumeError, match="charged in a different ledger"):
        run(values, ledger=str(tmp_path / "other.sqlite"))
    assert runs_charged(tmp_path / "other.sqlite") == 0
    (tmp_path / "ledger.sqlite").rename(tmp_path / "moved.sqlite")
    run(values, ledger=str(tmp_path / "moved.sqlite"))
    assert runs_charged(tmp_path / "moved.sqlite") == 1


def test_changed_data_are_an_error_and_leave_the_ledger_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = settings(tmp_path)
    with stops_after_the_charge(monkeypatch):
        run(values)
    write_csv(tmp_path / "notes.csv", rows(39))
    with pytest.raises(ResumeError, match="private data or the ledger are not those"):
        run(values)
    assert runs_charged(values["ledger"]) == 1
    with Ledger(values["ledger"]) as ledger:
        assert len(ledger.datasets()) == 1
    write_csv(tmp_path / "notes.csv", reversed(rows(40)))  # another order is the same content
    run(values)


def test_fresh_starts_anew_and_charges_again(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with Ledger(values["ledger"]) as ledger:
        ledger.open_dataset("notes", cap=Budget(6, "1e-5"), unit=Unit())
    first = run(values).release
    second = run(values, fresh=True).release
    assert runs_charged(values["ledger"]) == 2
    assert second.arrays["counts"].tolist() != first.arrays["counts"].tolist()
    run(values, fresh=True, length=2, insecure_no_noise=True)
    with pytest.raises(BudgetExceeded):
        run(values, fresh=True)
    assert runs_charged(values["ledger"]) == 2


def test_what_failed_before_the_charge_may_be_mended_in_the_same_folder(tmp_path: Path, use_chat: UseChat) -> None:
    chat = FakeChat(lambda request: Completion("", "failed", error="busy"))
    use_chat(chat)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.open_dataset("notes", cap=Budget(2, "1e-6"), unit=Unit())
    write_csv(tmp_path / "notes.csv", [*rows(), {**rows(1)[0], "department": "surgery"}])
    values = settings(tmp_path)
    with pytest.raises(BudgetExceeded):
        run(values)
    values["epsilon"] = "2"
    with pytest.raises(ConfigError):
        run(values, top_terms=99)
    with pytest.raises(ModelError, match="does not answer: busy"):
        run(values, llm="openai:fake")
    with pytest.raises(CorpusError):
        run(values)
    write_csv(tmp_path / "copy.csv", rows())
    assert runs_charged(values["ledger"]) == 0
    run(values, max_bad_rows=0.05)
    with pytest.raises(LedgerError, match="The ledger knows these data as the dataset 'notes'"):
        run(values, data=str(tmp_path / "copy.csv"), output=str(tmp_path / "copy"))
    with pytest.raises(BudgetExceeded):
        run(values, data=str(tmp_path / "copy.csv"), output=str(tmp_path / "copy"), dataset="notes")
    assert runs_charged(values["ledger"]) == 1


def test_an_endpoint_is_probed_until_the_run_has_begun_and_never_again(tmp_path: Path, use_chat: UseChat) -> None:
    chat = use_chat(FakeChat())
    values = settings(tmp_path, llm="openai:fake")
    run(values)
    assert len(chat.asked) == 1 + 8
    run(values)
    assert len(chat.asked) == 1 + 8
    assert len(set(chat.keys)) == 9


def test_failed_answers_are_dropped_counted_and_asked_again_on_resume(tmp_path: Path, use_chat: UseChat) -> None:
    number = iter(range(99))

    def sometimes(request: ChatRequest) -> Completion:
        return Completion("", "failed", error="busy") if next(number) % 4 == 1 else Completion("A text.", "stop")

    chat = use_chat(FakeChat(sometimes))
    values = settings(tmp_path, llm="fake")
    told: list[str] = []
    listener = running.Listener(told.append)
    result = running.run(run_config(values), listener=listener)
    assert (len(result.records), result.missing) == (6, 2)
    assert any(line.startswith("2 texts could not be generated. The same command asks again") for line in told)
    assert pq.read_metadata(tmp_path / "out" / "release" / "synthetic.parquet").num_rows == 6
    use_chat(FakeChat()).asked = chat.asked = []
    result = run(values)
    assert (len(result.records), result.missing) == (8, 0)


def test_refused_prompts_cost_their_texts_and_not_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating, "AT_ONCE", 1)
    minded: set[str] = set()

    def gateway(number: int, seen: Any) -> Any:
        if len(minded) < 3 and seen.prompt != "Say ok.":
            minded.add(seen.prompt)
        return error(403) if seen.prompt in minded else answer("A note.")

    with FakeEndpoint(gateway) as endpoint:
        unlike = {"top_terms": 16, "length": 16}  # no two prompts are alike
        values = settings(
            tmp_path,
            **{"llm": "openai:test", "base_url": endpoint.base_url, **unlike},
            prompt=prompt_file(tmp_path, examples_per_prompt=0),
        )
        for _ in range(2):
            result = run(values)
            assert (len(result.records), result.missing) == (5, 3)
            assert (tmp_path / "out" / "release" / "synthetic.parquet").exists()
    assert runs_charged(values["ledger"]) == 1


def test_a_second_process_in_the_same_folder_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.ledger.locking.LOCK_SECONDS", 0)
    values = settings(tmp_path)

    def meanwhile(line: str) -> None:
        with pytest.raises(ResumeError, match="Another process is using"):
            run(values)

    running.run(run_config(values), listener=running.Listener(meanwhile))
    assert runs_charged(values["ledger"]) == 1


def test_ctrl_c_is_exit_code_130_and_the_same_command_resumes(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = settings(tmp_path)

    def stop(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Release, "save", stop)
        said = understudy("run", *flags(values))
    assert said.code == 130
    assert said.err.splitlines()[-1] == "Interrupted. The same command (without --fresh) resumes."
    assert understudy("run", *flags(values)).code == 0
    assert runs_charged(values["ledger"]) == 1


def test_generate_resumes_in_its_own_folder(tmp_path: Path, use_chat: UseChat) -> None:
    release = running.release(run_config(settings(tmp_path, records_per_label=None))).release
    chat = use_chat(FakeChat())
    options = {"llm": "fake", "records": 5, "length": 2, "output": str(tmp_path / "more")}
    first = running.generate(release, **options)
    second = running.generate(tmp_path / "out" / "release" / "dp-kps.release", **options)
    assert first.columns == second.columns
    assert len(chat.asked) == 5
    with pytest.raises(ResumeError, match="records: 5 became 6"):
        running.generate(release, **{**options, "records": 6})
    other = running.release(run_config(settings(tmp_path, output=str(tmp_path / "other"), insecure_no_noise=True)))
    with pytest.raises(ResumeError, match="NOT PRIVATE must not replace"):
        running.generate(other.release, **options)
    assert load_release(tmp_path / "out" / "release" / "dp-kps.release").digest == release.digest
    assert set(release.terms) <= set(TERMS)


def test_a_run_that_reached_its_cap_goes_on_with_a_larger_one(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generating, "AT_ONCE", 1)
    with FakeEndpoint(lambda number, seen: answer("A note.", usage=(50, 50))) as endpoint:
        changes = {
            "llm": "openai:test",
            "base_url": endpoint.base_url,
            "max_tokens": 50,
            "price_input": 1,
            "price_output": 1,
        }
        values = settings(tmp_path, **changes, prompt=prompt_file(tmp_path, examples_per_prompt=0))
        said = understudy("run", *flags({**values, "spending_cap": 700e-6}), code=6)
        assert "cap" in said.err
        asked = len(endpoint.seen)
        assert 1 < asked < 9
        said = understudy("run", *flags({**values, "spending_cap": 0.1}), code=0)
        assert len(endpoint.seen) == 9
    assert runs_charged(values["ledger"]) == 1
