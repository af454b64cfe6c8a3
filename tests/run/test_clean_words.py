"""What a run's texts are written around: words that the private texts surely contain, and none that noise made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from clinic import LABELS, FakeChat, rows, settings, write_csv
from run_fixtures import UseChat, run_config

from understudy.run import pipeline
from understudy.run.session import Listener
from understudy.text.vocabulary.words import split_words

METHODS = {"dp-kps": {"length": 6, "top_terms": None, "guide": "off"}, "dp-kde": {"length": 4, "top_terms": 300}}
SAID = {word for row in rows(600) for word in split_words(row["note"])}
# Public terms that no text has.
CHANCE = [f"{a}{b}{c}ax" for a in "bcdfghjklmnpqrs" for b in "aeiou" for c in "bcdfghjkl"]


def seeds(folder: Path, count: int, said: list[str], **changes: Any) -> list[list[str]]:
    """The phrases that texts were made of, in a run over so many records."""
    folder.mkdir(exist_ok=True)
    chosen = settings(folder, **{"records_per_label": 60, "output": None, "insecure_noise_seed": 1, **changes})
    write_csv(folder / "notes.csv", rows(count))
    file = Path(chosen["vocabulary"])
    file.write_text("\n".join([*file.read_text("utf-8").splitlines()[:16], "anal", *CHANCE]), "utf-8")
    result = pipeline.run(run_config(chosen), listener=Listener(say=said.append))
    return [record.provenance["phrases"] for record in result.records]


@pytest.mark.usefixtures("embedder")
@pytest.mark.parametrize("method", METHODS)
def test_no_model_s_text_is_written_around_a_word_of_noise(tmp_path: Path, use_chat: UseChat, method: str) -> None:
    use_chat(FakeChat())
    said: list[str] = []
    made = seeds(tmp_path, 600, said, method=method, llm="fake:chat", **METHODS[method])
    assert {word for phrases in made for phrase in phrases for word in split_words(phrase)} <= SAID | set(LABELS)
    assert sum(len(phrases) > 1 for phrases in made) > len(made) / 2
    if method == "dp-kps":
        assert any(line.startswith("Texts for people: written around words that the private") for line in said)
    alone = seeds(tmp_path / "again", 600, said, method=method, llm="none", **METHODS[method])
    assert all(alone)
    if method == "dp-kps":
        assert any(line.startswith("Phrases for classifiers: uncertain words are included") for line in said)
    else:
        assert {phrase for phrases in alone for phrase in phrases} & set(CHANCE), "as published"
    assert not {"anal"} & {phrase for phrases in (*made, *alone) for phrase in phrases}


@pytest.mark.usefixtures("embedder")
@pytest.mark.parametrize("method", METHODS)
def test_a_table_in_which_nothing_is_sure_has_its_labels_names_in_place_of_chance(
    tmp_path: Path, use_chat: UseChat, method: str
) -> None:
    use_chat(FakeChat())
    said: list[str] = []
    made = seeds(tmp_path, 4, said, method=method, llm="fake:chat", epsilon="0.5", **METHODS[method])
    assert made == [[label] for label in LABELS for _ in range(60)]
    if method == "dp-kps":
        assert any("2 of 2 labels have no such word" in line for line in said)
    bare = seeds(
        tmp_path / "bare",
        4,
        said,
        method=method,
        llm="fake:chat",
        epsilon="0.5",
        label=None,
        labels=None,
        records_per_label=None,
        records=5,
        document_type="letter",
        **METHODS[method],
    )
    assert bare == [["letter"]] * 5
