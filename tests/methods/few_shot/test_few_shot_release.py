"""Few-shot releases: whatever the data hold they run alike, count every token, and go on where they were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from echo_model import EchoModel
from few_shots import ROWS, Store, method, plan_of, release
from predictions import ODD_TABLES
from tiny_corpora import LABELS, OWNER, Row, bounded

from understudy.base.errors import ConfigError, ModelError, PrivacyError
from understudy.methods.batched_prompts import sort_into_batches
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, SystemNoise
from understudy.privacy.plan import Receipt
from understudy.privacy.sealed import SealedValue
from understudy.privacy.unit import Unit


class Untouched(InsecureNoNoise):
    """Of which nothing is asked."""

    def include(self, rates: Any) -> Any:
        raise AssertionError("nothing is sampled")


@pytest.mark.parametrize("noise", ["gaussian", "votes"])
def test_any_data_run_to_the_end_in_the_same_shapes(noise: str) -> None:
    models = {name: EchoModel(length=4) for name in ODD_TABLES}
    chosen = method(noise=noise)
    for name, rows in ODD_TABLES.items():
        made = release(chosen, rows, model=models[name], noise=SystemNoise())
        assert set(made.arrays["label"].tolist()) == set(range(LABELS))
        assert len(made.strings["exemplars"]) == len(made.arrays["label"])
    shapes = set().union(*(model.shapes for model in models.values()))
    assert len(shapes) == 1, "rows, width and prefix are public"


def test_labels_have_their_own_texts_and_no_others() -> None:
    rows = [Row(f"text {number}", 1) for number in range(20)]
    made = release(method(sampling_rate=1.0), rows, model=EchoModel(length=5))
    letters = {label: set() for label in range(LABELS)}
    for label, text in zip(made.arrays["label"].tolist(), made.strings["exemplars"], strict=True):
        letters[label] |= set(text)
    assert letters[0] == letters[2] == {"x"}, "what the model says without private text"
    assert letters[1] != {"x"}


def test_an_exemplar_stops_at_its_most_tokens_and_the_last_for_want_of_paid_ones() -> None:
    made = release(method(exemplars=50, tokens=20), model=EchoModel())
    assert made.arrays["noisy_tokens"].tolist() == [6, 6, 6, 2] * LABELS
    assert not made.arrays["finished"].any()
    assert made.arrays["usable"].tolist() == [True, True, True, False] * LABELS
    dropped = release(method(exemplars=50, tokens=20, unfinished="drop"), model=EchoModel())
    assert not dropped.arrays["usable"].any()
    assert dropped.noise_check.warnings
    assert not made.noise_check.warnings


def test_an_exemplar_that_ends_by_itself_is_finished() -> None:
    made = release(method(), model=EchoModel(length=3))
    assert made.arrays["finished"].all()
    assert made.arrays["usable"].all()
    assert made.arrays["noisy_tokens"].tolist() == [4] * 9, "the token that ends it is paid for, too"
    assert {len(text) for text in made.strings["exemplars"]} == {3}
    blank = release(method(), model=EchoModel(length=0))
    assert blank.arrays["finished"].all()
    assert not blank.arrays["usable"].any()


def test_a_release_goes_on_with_more_exemplars_from_the_same_charge() -> None:
    store = Store()
    first = release(method(exemplars=2), store=store, model=EchoModel(length=3))
    kept = dict(store.kept)
    second = release(method(exemplars=9), store=store, model=EchoModel(length=3))
    assert all(store.kept[name] is kept[name] for name in kept), "nothing is drawn twice"
    assert first.strings["exemplars"][:2] == second.strings["exemplars"][:2]
    assert second.arrays["noisy_tokens"].tolist() == [4] * 6 * LABELS, "24 tokens are 6 exemplars of 4"
    again = release(method(exemplars=2), store=store, model=EchoModel(length=3), noise=Untouched())
    assert again.strings["exemplars"] == first.strings["exemplars"], "what is stored needs no noise"


@pytest.mark.parametrize("after", range(0, 10))
def test_a_crash_after_any_exemplar_draws_no_token_twice(after: int) -> None:
    store = Store(crash_after=after)
    chosen = method(exemplars=3)
    with pytest.raises(KeyboardInterrupt):
        release(method(exemplars=50), store=store, model=EchoModel(length=3), noise=SystemNoise())
    before = {name: value["tokens"].tolist() for name, value in store.kept.items()}
    assert len(before) == after
    store.crash_after = None
    made = release(chosen, store=store, model=EchoModel(length=3), noise=SystemNoise())
    assert all(store.kept[name]["tokens"].tolist() == tokens for name, tokens in before.items())
    assert all(store.tokens(label) <= 24 for label in range(LABELS))
    assert len(made.strings["exemplars"]) == 9


def test_a_crash_within_an_exemplar_draws_it_anew() -> None:
    class Dies(EchoModel):
        def batches_in_flight(self, rows: int, tokens: int) -> int:
            return 1

        def contexts(self, *words: Any, **more: Any) -> Any:
            if self.steps == 10:
                raise KeyboardInterrupt
            return super().contexts(*words, **more)

    store = Store()
    with pytest.raises(KeyboardInterrupt):
        release(method(), store=store, model=Dies())
    assert len(store.kept) == 1
    release(method(exemplars=50), store=store)
    assert all(store.tokens(label) == 24 for label in range(LABELS))


def test_what_goes_wrong_in_one_label_ends_the_others() -> None:
    class Fails(Store):
        def sealed(self, name: str) -> SealedValue | None:
            if name == "tokens/1/0":
                raise OSError
            return super().sealed(name)

    with pytest.raises(OSError):  # and not after the 100,000 tokens of the first label
        release(method(tokens=100_000, exemplars=1000, exemplar_tokens=2000, sampling_rate=0.01), store=Fails())


def test_stored_tokens_beyond_the_charge_are_refused() -> None:
    store = Store()
    release(method(tokens=24, exemplars=3), store=store)
    for name, value in store.kept.items():
        store.kept[name] = {**value, "noisy": np.ones(30, dtype=np.bool_)}
    made = release(method(tokens=24, exemplars=4), store=store)
    assert len(store.kept) == 9, "nothing is left to draw"
    assert len(made.strings["exemplars"]) == LABELS


def test_a_receipt_for_fewer_tokens_gives_no_more() -> None:
    store = Store()
    release(method(exemplars=50), receipt=Receipt("run", plan_of(method(tokens=20))), store=store)
    assert [store.tokens(label) for label in range(LABELS)] == [20] * LABELS


def test_every_exemplar_has_a_seal_of_its_charge_and_none_of_another_run_is_taken() -> None:
    store = Store()
    release(method(), store=store)
    (charge,) = plan_of(method()).charges
    assert set(store.seals) == set(store.kept)
    assert {(seal.event, seal.noise, seal.private) for seal in store.seals.values()} == {(charge.event, "none", False)}
    with pytest.raises(PrivacyError, match="sealed for another run"):
        release(method(), store=store, receipt=Receipt("another", plan_of(method())))


def test_the_private_texts_are_read_once_and_only_where_something_is_drawn() -> None:
    passes = []

    chosen, store = method(), Store()
    plan = plan_of(chosen)
    corpus = bounded(ROWS, plan.unit)
    whole = type(corpus).batches

    def counting(self: Any) -> Any:
        passes.append(1)
        return whole(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(corpus), "batches", counting)
        release(chosen, store=store)
        assert len(passes) == 1
        release(chosen, store=store)
        assert len(passes) == 1


def test_an_owner_is_one_text_in_one_label_whatever_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Row(f"text {number}", number % LABELS, "ann" if number % 3 else "bob") for number in range(24)]
    plan = plan_of(method(), unit=OWNER)
    tokenise = lambda text, label: (list(text.encode()), False)  # noqa: E731

    def texts(rows: list[Row]) -> int:
        read = sort_into_batches(bounded(rows, plan.unit), tokenise, labels=LABELS)
        return sum(len(batch.rows) for (batch,) in read.of_label)

    assert texts(rows) == 2
    assert texts([*rows, Row("late", 0, "zoe")] * 3) == 3
    release(method(), rows, unit=OWNER)
    monkeypatch.setattr("understudy.methods.few_shot.plan.one_record_each", lambda unit: unit)
    with pytest.raises(PrivacyError, match="records in the sample"):
        release(method(), rows, unit=Unit("owner", 3))


def test_seeded_noise_repeats_and_the_systems_does_not() -> None:
    chosen = method(exemplars=50)
    twice = [release(chosen, noise=InsecureSeededNoise(7)).strings["exemplars"] for _ in range(2)]
    assert twice[0] == twice[1]
    others = [release(chosen, noise=SystemNoise()).strings["exemplars"] for _ in range(2)]
    assert others[0] != others[1]


def test_what_was_public_stands_in_the_release() -> None:
    made = release(method())
    assert made.public_inputs["private model"] == {"source": "echo", "sha256": "0" * 64}
    assert len(made.public_inputs["prompts"]["sha256"]) == 64
    assert made.noise_check["usable_exemplars"] == (3,) * LABELS
    assert made.noise_check["noisy_tokens"] == (18,) * LABELS


def test_what_is_said_holds_counts_only() -> None:
    said: list[str] = []
    release(method(), said=said, model=EchoModel(length=2))
    assert "Exemplar 1 of 3 of a: 3 noisy tokens." in said
    assert len(said) == 9


class Scribe(EchoModel):
    """Writes one record, letter by letter, whatever it is shown."""

    record = '"Rain", "year": 1954}'

    def _logits(self, row: Sequence[int]) -> Any:
        logits = super()._logits(row)
        written = bytes(token for token in row if token < 256).rpartition(b'{"title":')[2]
        logits[:] = 0.0
        rest = self.record.encode()[len(written) :] if self.record.encode().startswith(written) else b""
        logits[rest[0] if rest else 257] = 40.0
        return logits


def test_of_a_record_what_must_follow_is_written_and_not_paid_for(tmp_path: Path) -> None:
    (tmp_path / "film.json").write_text(json.dumps({"properties": {"year": {"type": "integer"}}}))
    chosen = method(exemplars=1, exemplar_tokens=40, tokens=40, json_schema=str(tmp_path / "film.json"), candidates=258)
    rows = [Row('{"title": "Snow", "year": 1960}', number % LABELS) for number in range(9)]
    store = Store()
    made = release(chosen, rows, model=Scribe(), store=store, columns=("title", "year"))
    assert made.strings["exemplars"] == ['{"title": "Rain", "year": 1954}'] * LABELS
    assert made.arrays["usable"].all()
    stored = store.kept["tokens/0/0"]
    assert stored["noisy"].sum() < len(stored["noisy"]), "the name of the second column is certain"
    assert made.arrays["noisy_tokens"][0] == stored["noisy"].sum()
    assert json.loads(made.strings["json schema"][0])["properties"]
    assert "JSON schema" in made.public_inputs


def test_an_exemplar_that_is_no_record_is_counted_and_not_used() -> None:
    made = release(method(exemplar_tokens=40, tokens=40), [], model=EchoModel(length=5), columns=("title", "year"))
    assert not made.arrays["usable"].any()
    assert "not JSON" in made.noise_check["exemplars_no_records"]


class Overflowing(EchoModel):
    """Its public logits are finite after the prompt, and after two tokens no more."""

    def contexts(self, rows: Sequence[Sequence[int]], **options: Any) -> Any:
        made = super().contexts(rows, **options)
        spelled = bytes(min(token, 255) for token in rows[0])  # one beyond the bytes counts as well
        drawn = spelled.rpartition(b"T:")[2]

        class Failing(type(made)):  # type: ignore[misc]
            def public_logits(self) -> Any:
                if len(drawn) >= 2:
                    raise ModelError("The logits are not finite.", "Use another model.")
                return super().public_logits()

        return Failing(made.logits, made.real, made.rows_at_once)


@pytest.mark.parametrize("noise", ["gaussian", "votes"])
def test_where_the_public_logits_fail_the_exemplar_is_stored_as_it_is_and_the_others_are_drawn(noise: str) -> None:
    store = Store()
    made = release(method(noise=noise), model=Overflowing(), store=store, noise=InsecureSeededNoise(1))
    noisy = made.arrays["noisy_tokens"].tolist()  # one where a vote ended the exemplar before
    assert len(noisy) == 3 * LABELS
    assert set(noisy) <= {1, 2}
    ended = made.arrays["finished"].tolist()  # by the noise: the end of a text is a candidate
    assert all(finished or count == 2 for count, finished in zip(noisy, ended, strict=True))
    assert not all(ended)


def test_a_window_without_room_for_private_texts_is_refused_before_anything_is_paid() -> None:
    model = EchoModel()
    model.window = 26  # type: ignore[misc]
    with pytest.raises(ConfigError, match="window"):
        release(method(), model=model)
    assert model.steps == 0
