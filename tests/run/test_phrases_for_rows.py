"""Texts that go with their rows: phrases of dp-kps that fit them, and prompts that show them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clinic import LABELS, TERMS, FakeChat, settings, write_csv
from evolution_fixtures import evolving
from run_fixtures import UseChat, release, run, simple_fit
from test_table_runs import COLUMNS, tables

import understudy as us
from understudy.base.errors import ReleaseError
from understudy.methods.additions.columns import release as columns_release
from understudy.methods.dp_kps.plan import COLUMN_DENSITY
from understudy.release import Release
from understudy.text.records import SyntheticRecord, shown

pytestmark = pytest.mark.usefixtures("embedder")
WARDS = ("A", "B")
# Which terms the notes of a ward in a department hold.
SAID = {
    (label, ward): TERMS[8 * place + 4 * (ward == "B") :][:4] for place, label in enumerate(LABELS) for ward in WARDS
}


def wards(folder: Path, **changes: Any) -> dict[str, Any]:
    """Settings of a run on notes of two departments with two wards each."""
    made = []
    for number in range(800):
        label, ward = LABELS[number % 2], WARDS[number // 2 % 2]
        words = [SAID[label, ward][(number // 4 + step) % 4] for step in range(2)]
        made.append({"note": ", ".join(words), "department": label, "ward": ward, "night": "no"})
    write_csv(folder / "notes.csv", made, [*made[0]])
    asked = {
        "columns": "ward=A|B; night",
        "epsilon": "8",
        "top_terms": 16,
        "records_per_label": 100,
        "insecure_noise_seed": 1,
    }
    return settings(folder, **{**asked, **changes})


def fitting(result: us.Result) -> float:
    """Share of all phrases that are said in the ward of their row."""
    columns, fits = result.columns, list[bool]()
    for label, ward, record in zip(columns["department"], columns["ward"], result.records, strict=True):
        if isinstance(label, str) and isinstance(ward, str):
            fits += [phrase in SAID[label, ward] for phrase in record.provenance["phrases"]]
    return sum(fits) / len(fits)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Release:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns_release, "fit", simple_fit)
        values = wards(tmp_path_factory.mktemp("made"), records_per_label=None)
        return release(values)


def test_phrases_fit_the_rows_of_their_texts_and_prompts_show_both(made: Release, use_chat: UseChat) -> None:
    assert fitting(us.generate(made, llm="none", records_per_label=100)) > 0.85
    assert [charge.name for charge in made.statement.charges][:3] == ["vocabulary", "density", COLUMN_DENSITY]
    ward, night = (float(part.split()[1]) for part in str(made.noise_check["column_lifts"]).split(", "))
    assert ward > 0.5 > 0.1 > night
    chat = use_chat(FakeChat())
    result = us.generate(made, llm="fake", records_per_label=20, accept_all=True)  # an echo, so some are alike
    assert fitting(result) > 0.8
    prompts = [request.messages[-1].content for request in chat.asked]
    for prompt, record in zip(prompts, result.records, strict=True):
        assert record.columns is not None
        assert f"ward: {record.columns[0]}" in prompt or record.columns[0] is None
        assert all(phrase in prompt for phrase in record.provenance["phrases"])


def test_without_columns_in_the_phrases_they_fit_by_chance(tmp_path: Path) -> None:
    result = run(wards(tmp_path, phrase_columns="none"))
    assert 0.35 < fitting(result) < 0.65
    assert COLUMN_DENSITY not in result.release.arrays


def test_a_condition_gets_phrases_of_its_rows(made: Release) -> None:
    result = us.generate(made, llm="none", records_per_label=50, where={"ward": "B"}, seed=3)
    assert set(result.columns["ward"]) == {"B"}
    assert fitting(result) > 0.85


def test_phrases_that_a_guide_chose_get_rows_that_they_fit(tmp_path: Path) -> None:
    result = run(wards(tmp_path, guide=True, epsilon="12"))
    assert fitting(result) > 0.8
    assert 40 <= list(result.columns["ward"]).count("A") <= 160


def test_a_release_that_lacks_what_its_parameters_name_is_refused(made: Release, tmp_path: Path) -> None:
    arrays = {name: array for name, array in made.arrays.items() if name != COLUMN_DENSITY}
    replace(made, arrays=arrays).save(tmp_path / "less.release")
    with pytest.raises(ReleaseError):
        us.load_release(tmp_path / "less.release")


def test_a_release_of_before_has_rows_by_their_label(made: Release, tmp_path: Path) -> None:
    arrays = {name: array for name, array in made.arrays.items() if name != COLUMN_DENSITY}
    charges = tuple(charge for charge in made.statement.charges if charge.name != COLUMN_DENSITY)
    parameters = {name: value for name, value in made.parameters.items() if name != "phrase_columns"}
    old = replace(made, arrays=arrays, statement=replace(made.statement, charges=charges), parameters=parameters)
    result = us.generate(old, llm="none", records=200)
    assert 0.35 < fitting(result) < 0.65


# -- the row that is shown is the row that is written ------------------------------------------------------------------


def evolved(folder: Path, method: str, **changes: Any) -> us.Result:
    tables(folder)  # writes the notes
    values = evolving(folder, method=method, columns=COLUMNS, insecure_noise_seed=1, **changes)
    return run(values)


def details(record: SyntheticRecord) -> str:
    assert record.columns is not None
    names = [part.split("=")[0] for part in COLUMNS.split("; ")]
    named = zip(names, record.columns, strict=True)
    return "; ".join(f"{name}: {shown(value)}" for name, value in named if value is not None)


@pytest.mark.parametrize("method", ["aug-pe", "guided-evolution"])
def test_variations_are_asked_to_fit_the_row_that_they_get(tmp_path: Path, varied_chat: FakeChat, method: str) -> None:
    result = evolved(tmp_path, method, harvest="variations", where="ward=A")
    asked = [request.messages[-1].content for request in varied_chat.asked]
    rows = [prompt.split("\n\n")[0] for prompt in asked if prompt.startswith("Details: ")]
    assert len(result.records) == len(rows) > 0
    assert rows == [f"Details: {details(record)}." for record in result.records]
    assert all("ward: A" in row for row in rows)


@pytest.mark.parametrize("method", ["aug-pe", "guided-evolution"])
def test_texts_evolved_without_rows_get_one_by_label(tmp_path: Path, varied_chat: FakeChat, method: str) -> None:
    result = evolved(tmp_path, method, harvest="population")
    assert {record.provenance["source"] for record in result.records} == {"population"}
    assert all(record.columns is not None for record in result.records)
    assert not [request for request in varied_chat.asked if "Details:" in request.messages[-1].content]
