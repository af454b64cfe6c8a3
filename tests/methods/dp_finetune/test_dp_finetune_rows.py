"""Typed columns: a text is learnt behind the cells of its row, and written behind those of a sampled one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from local_fixtures import make_llama
from tiny_corpora import Row, bounded

from understudy.base.columns import declared_columns, in_words
from understudy.base.transcript import PLAIN
from understudy.methods.dp_finetune.method import DPFinetune
from understudy.methods.dp_finetune.release import read_units
from understudy.methods.public import GenerationTools
from understudy.methods.shared.decoding.tuned import Instructions, Sampling, TunedModel
from understudy.methods.tuned import generate as texts
from understudy.methods.tuned.model import trainable_of
from understudy.models.causal import CausalModel
from understudy.models.types import Completion
from understudy.text.prompts.template import WritingParameters, load_template
from understudy.text.writing import Row as SampledRow
from understudy.text.writing import Writer

COLUMNS = declared_columns("ward=A|B; beds=1..4")


class Tuned:
    """Says what it is asked to continue; a row is its text."""

    causal = SimpleNamespace(model_id="fake:tuned")

    def __init__(self, shape: str = "text") -> None:
        self.instructions = SimpleNamespace(shape=shape, text=str.strip)

    def row(self, text: str, label: int) -> str:
        return f"{label} {text}"

    def sample(self, keys: Sequence[Any], *, sampling: Any, beginnings: Sequence[str]) -> Iterator[Completion]:
        yield from (Completion(f"A text behind <{beginning}>.", "stop") for beginning in beginnings)


@pytest.mark.parametrize(("shape", "begins"), [("text", "ward: B; beds: 2\n"), ("json", "")])
def test_a_text_is_learnt_behind_the_cells_of_its_row(shape: str, begins: str) -> None:
    tuned: Any = Tuned(shape)
    corpus = bounded([Row("a note", 1, cells=(1, 1)), Row("another", 0, cells=(2, 4))])
    found = [rows[0] for rows in read_units(corpus, tuned, COLUMNS)]
    assert found == [f"1 {begins}a note", "0 \nanother" if shape == "text" else "0 another"]  # both values are missing
    assert [rows[0] for rows in read_units(corpus, tuned)] == ["1 a note", "0 another"]


class TwoRows:
    def take(self, label: int) -> SampledRow:
        return SampledRow(("A", label), "ward: A", in_words(COLUMNS, (0, label)))


@pytest.mark.parametrize("knows_rows", [True, False])
def test_a_text_is_written_behind_the_cells_of_the_row_that_it_gets(knows_rows: bool) -> None:
    writer = Writer(None, load_template("document"), WritingParameters(), rows=TwoRows())
    tuned: Any = Tuned()
    release: Any = SimpleNamespace(schema=SimpleNamespace(record_columns=(), form=PLAIN), strings={})
    method = DPFinetune(declared_records=100)
    made = texts.generate(method, release, [1, 2], tuned=tuned, tools=GenerationTools(writer), knows_rows=knows_rows)
    found = [(record.text, record.columns) for record in made]
    if knows_rows:
        assert found[0] == ("A text behind <ward: A; beds: 1\n>.", ("A", 0))
        assert found[1:] == [("A text behind <ward: A; beds: 2\n>.", ("A", 1))] * 2
    else:
        assert found == [("A text behind <>.", None)] * 3


def test_the_line_of_a_row_is_ended_for_the_text_as_it_was_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    causal = CausalModel(make_llama(tmp_path), name="tiny", dtype="float32")
    instructions = Instructions(((1, 2, 3),), lead=" ")
    tuned = TunedModel(trainable_of(DPFinetune(declared_records=100), causal), instructions, tokens=40)
    tuned.trainable.load(tuned.trainable.start())
    asked: list[list[int]] = []

    class Decoder:
        def answer(self, prompts: Sequence[Any], *, cancelled: Any) -> list[Completion]:
            asked.extend(prompt.tokens for prompt in prompts)
            return [Completion("", "stop")] * len(prompts)

    monkeypatch.setattr(CausalModel, "decoder", lambda *_: Decoder())
    for beginning in ("ward: A; beds: 1\n", "a note, seen"):
        asked.clear()
        list(tuned.sample([(0, "a")], sampling=Sampling(0, 1.0, 1.0, 4), beginnings=[beginning]))
        learnt = tuned.row(f"{beginning}on Monday", 0)
        begun = [*learnt.prompt, *learnt.target.tolist()]
        assert asked == [begun[: -len("on Monday") - 1]]  # tokens are bytes; the last one ends the text
