"""dp-finetune from a file to texts with a tiny model: charges, checkpoints, texts, and what is told before."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from local_fixtures import make_llama, random_adapters, shipped_with
from local_runs import PLANT, local_run
from run_fixtures import files_holding, runs_charged
from tiny_corpora import Row, bounded

from understudy.base.errors import ConfigError, ReleaseError, ResumeError
from understudy.methods.dp_finetune import release as releasing
from understudy.methods.dp_finetune.method import DPFinetune
from understudy.methods.dp_finetune.release import read_units
from understudy.methods.facts import GenerationTools
from understudy.methods.registry import load_release
from understudy.methods.shared.decoding import tuned as texts
from understudy.methods.shared.decoding.tuned import Instructions, Sampling, TunedModel
from understudy.methods.tuned.model import trainable_of
from understudy.models import catalog, causal, writer
from understudy.models.causal import CausalModel
from understudy.models.types import Completion
from understudy.privacy.gradients import Steps
from understudy.run.pipeline import generate, release, run
from understudy.run.settings import RunConfig, run_config
from understudy.schema.columns import declared_columns, in_words
from understudy.schema.transcript import PLAIN
from understudy.text.prompts.template import WritingParameters, load_template
from understudy.text.records import Row as SampledRow
from understudy.text.writing import NoText, Writer

SMALL: dict[str, Any] = {
    **{"method": "dp-finetune", "declared_records": 24, "sampling_rate": 0.3, "steps": 4, "lora_rank": 2},
    "unfinished": "keep",
}
Configured = Callable[..., RunConfig]


@pytest.fixture
def config(tmp_path: Path, llama: Path) -> Configured:
    return lambda **changes: run_config(local_run(tmp_path, llama, **{**SMALL, **changes}))


def test_one_charge_and_the_texts_come_of_the_release(config: Configured, tmp_path: Path, llama: Path) -> None:
    result = run(config())
    assert result.statement.private
    assert len(result.records) == 8
    assert {record.label for record in result.records} == {0, 1}
    again = run(config())
    assert again.release.digest == result.release.digest
    assert [each.text for each in again.records] == [each.text for each in result.records]
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert files_holding(tmp_path / "out", PLANT.encode()) == []
    assert any("floating point" in note for note in result.statement.notes)
    made = load_release(tmp_path / "out" / "release" / "dp-finetune.release")
    names = [name for name in made.arrays if name.endswith("lora_B.weight")]
    assert len(names) == 4, "queries and values of two blocks"
    assert any(np.any(made.arrays[name]) for name in names), "something was learnt"
    model = f"hf:{llama}"
    more = generate(made, private_model=model, records=30, output=str(tmp_path / "more"), seed=3)
    assert len(more.records) == 30
    assert json.loads((tmp_path / "more/release/statement.json").read_text())["private"] is True


def test_the_plan_is_met_and_stated(config: Configured) -> None:
    statement = release(config(label_sizes="noisy")).statement
    assert [charge.name for charge in statement.charges] == ["labels", "training"]
    assert max(statement.epsilon_at[1e-6], 0) <= 3


def test_a_killed_run_resumes_where_it_was(config: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    original = Steps.noisy_sum

    def dying(self: Steps, *arguments: Any) -> Any:
        taken.append(len(taken))
        if len(taken) == 4:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr("understudy.methods.dp_finetune.plan._CHECKPOINTS", 2)
    monkeypatch.setattr(Steps, "noisy_sum", dying)
    with pytest.raises(KeyboardInterrupt):
        release(config())
    stored: list[dict[str, Any]] = []
    between = releasing.Training.between

    def watched(self: Any, state: Any, first: int, last: int) -> Any:
        stored.append({"state": state, "first": first, "last": last})
        return between(self, state, first, last)

    monkeypatch.setattr(releasing.Training, "between", watched)
    result = release(config()).release
    assert [(each["first"], each["last"]) for each in stored] == [(2, 4)], "the first two steps were stored"
    assert int(stored[0]["state"]["step"]) == 2
    assert len(taken) == 4 + 2, "steps that nobody saw are sampled anew, and no others"
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert result.statement.private


def test_an_empty_batch_has_noise_and_is_a_step(config: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "understudy.models.training.LoRA.gradients", lambda self, block: pytest.fail("nothing was sampled")
    )
    monkeypatch.setattr("understudy.methods.dp_finetune.release.try_out", lambda found, *_: (found, releasing.Facts()))
    made = release(config(sampling_rate=1e-9, steps=2)).release
    names = [name for name in made.arrays if name.endswith("lora_B.weight")]
    assert all(np.any(made.arrays[name]) for name in names)


def test_owners_are_sampled_and_show_one_record(config: Configured, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[int] = []
    original = releasing.shown

    def watched(sampled: Any, steps: Any) -> Any:
        found = original(sampled, steps)
        shown.append(len(found))
        assert len(sampled) == 5
        assert max(map(len, sampled)) > 1
        return found

    monkeypatch.setattr(releasing, "shown", watched)
    made = release(config(owner="clinician", declared_records=5, sampling_rate=1)).release
    assert shown == [5] * 4
    assert made.statement.unit.kind == "owner"


def test_another_base_model_is_refused(config: Configured, tmp_path: Path) -> None:
    made = release(config()).release
    other = make_llama(tmp_path / "other", seed=1)
    with pytest.raises(ReleaseError, match="another base model"):
        generate(made, private_model=f"hf:{other}", records=2, output=str(tmp_path / "texts"))


@pytest.fixture
def builtin(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny model as the built-in one, with adapters of its shapes."""
    matrices = random_adapters(llama)
    monkeypatch.setattr(writer, "_content", lambda: shipped_with(matrices))
    writer.fingerprint.cache_clear()
    for module in (catalog, causal):
        monkeypatch.setattr(module, "builtin_path", lambda _: llama)


@pytest.mark.usefixtures("builtin")
def test_the_built_in_model_learns_from_the_writer_and_is_asked_as_it_was(config: Configured, tmp_path: Path) -> None:
    made = release(config(private_model="builtin")).release
    plain = catalog.load_causal("builtin")
    named = made.statement.public_inputs["private model"]
    assert (
        named["source"] == "builtin:smollm2-135m-instruct+writer, with adapters that understudy trained on public texts"
    )
    assert named["sha256"] != plain.fingerprint
    tuned = DPFinetune(lora_rank=2).tuned_model(made, plain)
    assert [plain.decode(each) for each in tuned.instructions.prompts] == [
        f"system\nnote about {label}\nassistant\n" for label in made.schema.labels
    ]
    assert tuned.instructions.target(" One text. ") == "One text."
    again = pickle.loads(pickle.dumps(plain))
    assert (again.fingerprint, again.model_id) == (named["sha256"], plain.model_id)
    weights = [
        each.network.model.layers[0].mlp.up_proj.weight for each in (plain, again, catalog.load_causal("builtin"))
    ]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    texts = generate(made, private_model="builtin", records=4, output=str(tmp_path / "texts"))
    assert {each.provenance["model"] for each in texts.records} == {"builtin:smollm2-135m-instruct+writer"}


@pytest.mark.usefixtures("builtin")
def test_texts_in_a_form_that_the_writer_was_not_trained_on_are_learnt_from_the_plain_model(config: Configured) -> None:
    made = release(config(private_model="builtin", prompt_form="chat")).release
    assert made.statement.public_inputs["private model"]["source"] == "builtin:smollm2-135m-instruct"


@pytest.mark.usefixtures("builtin")
def test_a_release_of_the_plain_model_still_writes_and_a_run_that_began_with_it_does_not_go_on_with_the_writer(
    config: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = config(private_model="builtin", output=str(tmp_path / "killed"), ledger=str(tmp_path / "other.sqlite"))
    with monkeypatch.context() as before:
        before.setattr(DPFinetune, "from_writer", False)
        made = release(config(private_model="builtin")).release
        before.setattr(Steps, "noisy_sum", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            release(killed)
    texts = generate(made, private_model="builtin", records=2, output=str(tmp_path / "texts"))
    assert {each.provenance["model"] for each in texts.records} == {"builtin:smollm2-135m-instruct"}
    with pytest.raises(ResumeError, match="that version of understudy"):
        release(killed)


def test_what_public_facts_tell_is_told_before_the_charge(config: Configured, tmp_path: Path) -> None:
    for changes, problem in (({"private_text_tokens": 500}, "window"), ({"json_schema": "x.json"}, "not records")):
        with pytest.raises(ConfigError, match=problem):
            release(config(**changes))
        assert runs_charged(tmp_path / "ledger.sqlite") == 0


def test_as_many_gradients_are_computed_at_once_as_fit_into_memory(
    config: Configured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def fits(_bytes: int) -> bool:
        tried.append(_bytes)
        return len(tried) == 3

    monkeypatch.setattr("understudy.methods.dp_finetune.release.fits_memory", fits)
    assert release(config()).release.statement.private
    assert tried == sorted(tried, reverse=True)
    other = {"output": str(tmp_path / "other"), "ledger": str(tmp_path / "other.sqlite")}
    with pytest.raises(ConfigError, match="gradient of one text does not fit into memory"):
        release(config(**other))
    assert runs_charged(tmp_path / "other.sqlite") == 0
    assert len(tried) == 3 + 4, "8, 4, 2; then 8, 4, 2 and 1"


def test_the_yardstick_without_privacy_must_be_asked_for_and_is_stamped(config: Configured, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="protects nobody"):
        run(config(method="nonprivate-finetune"))
    result = run(config(method="nonprivate-finetune", insecure_no_noise=True))
    assert not result.statement.private
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    assert any("neither clipped nor noisy" in note for note in result.statement.notes)
    assert all(record.provenance["stamp"] == "NOT PRIVATE" for record in result.records)
    assert "NOT PRIVATE" in (tmp_path / "out/release/statement.md").read_text()


def test_records_are_shared_out_as_counted_or_declared(config: Configured) -> None:
    result = run(config(label_sizes="cardiology=3,dermatology=1", records_per_label=None, records=8))
    assert [record.label for record in result.records].count(0) == 6


def test_json_records_are_trained_and_sampled_as_such(config: Configured, tmp_path: Path, llama: Path) -> None:
    settings = {"text": None, "record_columns": "note,clinician", "private_text_tokens": 40, "records_per_label": 2}
    result = run(config(**settings))
    assert (len(result.records), result.missing) == (0, 4), "random weights write no JSON"
    form = result.release.strings["form"]
    model = {"private_model": f"hf:{llama}"}
    with pytest.raises(NoText, match="no text that can be used"):
        generate(result.release, **model, records=2, output=str(tmp_path / "texts"))
    assert form[0] == '{"note":'
    assert form[2] == "json"


def test_transcripts_are_trained_and_what_is_none_is_left_out(config: Configured) -> None:
    result = run(config(text="note,clinician", private_text_tokens=40, records_per_label=2))
    assert result.release.schema.form.fields == ("note", "clinician")
    assert (len(result.records), result.missing) == (0, 4), "random weights write no transcript"


def test_every_weight_of_a_small_model_can_learn(config: Configured) -> None:
    made = release(config(learns="all", steps=2)).release
    assert "model.embed_tokens.weight" in made.arrays
    assert made.arrays["model.embed_tokens.weight"].shape == (259, 32)


# -- typed columns: texts are learnt behind the cells of their rows ---------------------------------------------------

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
    tools = GenerationTools(writer)
    made = texts.generate(method.unfinished, release, [1, 2], tuned=tuned, tools=tools, knows_rows=knows_rows)
    found = [(record.text, record.columns) for record in made]
    if knows_rows:
        assert found[0] == ("A text behind <ward: A; beds: 1\n>.", ("A", 0))
        assert found[1:] == [("A text behind <ward: A; beds: 2\n>.", ("A", 1))] * 2
    else:
        assert found == [("A text behind <>.", None)] * 3


def test_the_line_of_a_row_ends_for_the_text_as_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
