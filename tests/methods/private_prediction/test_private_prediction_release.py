"""Whatever the private data hold, a release runs alike; where it is stopped, all its threads stop and store no part."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from predictions import NAMES, ODD_TABLES, ROWS, Scripted, Store, Told, method, plan_of, release
from predictions import prepare as check
from script_model import END, ScriptModel, alike, echo, spell
from tiny_corpora import LABELS, OWNER, Row

from understudy.base.errors import ConfigError, ModelError, ReleaseError
from understudy.methods.batched_prompts import Stop
from understudy.privacy.noise import InsecureSeededNoise, SystemNoise
from understudy.release import PublicSchema, Release
from understudy.release.statement import Statement
from understudy.text.records import SyntheticRecord


@pytest.mark.parametrize("options", [{}, {"sparse_vector": True}, {"clip": "recenter"}, {"clip": "fixed"}], ids=str)
def test_any_data_run_to_the_end_in_the_same_shapes(options: dict[str, Any]) -> None:
    shapes = set()
    for rows in ODD_TABLES.values():
        model, store = ScriptModel(echo(2), in_flight=3), Store()
        made = release(method(unfinished="keep", **options), rows, model=model, store=store, noise=SystemNoise())
        assert {name.rpartition("/")[0] for name in store.kept} == {
            f"tokens/{label}/{number}" for label in range(LABELS) for number in range(2)
        }
        assert len(made.strings["texts"]) == len(made.arrays["label"])
        assert len(made.noise_check["texts"]) == LABELS
        shapes |= model.shapes
    assert len(shapes) == 1, "prefix, width, suffix, room and rows of a block are public"


def test_owners_run_to_the_end_too() -> None:
    for rows in ([], [Row(f"text {number}", number % LABELS, "zoe") for number in range(20)], ROWS):
        assert len(release(method(), rows, unit=OWNER).noise_check["texts"]) == LABELS


def test_a_batch_of_far_more_texts_than_declared_runs_in_the_same_blocks() -> None:
    model = ScriptModel(echo(3))
    rows = [Row(f"text {number}", 0) for number in range(40)]
    made = release(method(batches=1, batch_size=3), rows, model=model)
    assert {shape[-2] for shape in model.shapes} == {4}
    assert made.noise_check["texts"][0] > 0


def test_a_model_that_has_no_end_of_a_text_ends_by_its_most_tokens() -> None:
    model = ScriptModel(alike(None), ends=frozenset())
    dropped = release(method(tokens_per_batch=16), model=model)
    assert not dropped.strings["texts"]
    assert dropped.noise_check.warnings
    assert dropped.noise_check["texts_left_out"] == "longer than --max-tokens 12"
    kept = release(method(tokens_per_batch=16, unfinished="keep"), model=model)
    assert set(kept.strings["texts"]) == {"xxxxxxxx"}
    assert not kept.arrays["ended"].any()


def test_empty_texts_are_left_out_and_counted() -> None:
    made = release(method(tokens_per_batch=2), model=ScriptModel(lambda text, drawn: END))
    assert not made.strings["texts"]
    assert made.noise_check["texts_left_out"] == "empty 12"
    assert (made.noise_check["tokens"], made.noise_check["private_tokens"]) == (12, 12)


def test_texts_of_a_label_come_from_its_own_records() -> None:
    rows = [Row("m", 1)] * 12
    chosen = method(batches=1, clip="recenter", clip_range=15.0, tokens_per_batch=4, top_k=0)
    made = release(chosen, rows, model=ScriptModel(echo(3)))
    of_label = {label: set() for label in range(LABELS)}
    for label, text in zip(made.arrays["label"].tolist(), made.strings["texts"], strict=True):
        of_label[label].add(text)
    assert len(of_label[1]) == 1
    assert not of_label[1] & {"xxx", *of_label[0], *of_label[2]}, "not what is said without private text"


def test_no_text_of_another_batch_is_read_by_a_batch() -> None:
    seen: list[set[bytes]] = []

    class Watched(ScriptModel):
        def contexts(self, rows: Any, **options: Any) -> Any:
            seen.append({bytes(token for token in row if token < 256) for row in rows[1:]})
            return super().contexts(rows, **options)

    release(method(), model=Watched())
    assert sum(map(len, seen)) == len(ROWS) == len(set().union(*seen))


# Records


RECORD = '{"title": "Rain", "year": 1954}'
FILM = {"properties": {"title": {"type": "string"}, "year": {"type": "integer", "minimum": 1900}}}


def schema(folder: Path) -> str:
    (folder / "film.json").write_text(json.dumps(FILM), "utf-8")
    return str(folder / "film.json")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (RECORD, None),
        ('{"title": "Rain", "year": 1854}', "schema"),
        ('{"title": Rain, "year": 1954}', "not JSON"),
        ('{"title": "Rain", "year": 1954, "more": 1}', "columns"),
    ],
)
def test_what_is_no_record_is_kept_apart_and_counted(tmp_path: Path, text: str, fault: str | None) -> None:
    model = ScriptModel(spell(text, '{"title":'))
    chosen = method(batches=1, tokens_per_batch=60, top_k=0, texts_per_batch=1, json_schema=schema(tmp_path))
    made = release(chosen, [], model=model, columns=("title", "year"), max_tokens=60)
    if fault is None:
        assert made.strings["texts"] == [RECORD] * LABELS
        assert made.strings["no records"] == []
    else:
        assert made.strings["texts"] == []
        assert len(made.strings["no records"]) == LABELS
        assert made.noise_check["texts_left_out"] == f"{fault} {LABELS}"
    assert len(made.arrays["label"]) == len(made.strings["texts"])
    assert made.public_inputs["JSON schema"]["source"] == "film.json"


# What is refused before anything is charged


def test_what_can_be_asked_for_passes_and_prefills_the_public_row_alone() -> None:
    seen: list[int] = []

    class Watched(ScriptModel):
        def contexts(self, rows: Any, **options: Any) -> Any:
            seen.append(len(rows))
            return super().contexts(rows, **options)

    model = Watched()
    check(method(), model)
    assert seen == [1], "all labels have the same shape"
    release(method(), model=model)
    assert len(model.shapes) == 1, "what was tried is what is used"


def test_a_window_without_room_for_private_texts_is_refused() -> None:
    with pytest.raises(ConfigError, match="window"):
        check(method(), ScriptModel(window=20))
    check(method(), ScriptModel(window=40))


def test_missing_batches_are_refused_with_what_recommends_them() -> None:
    with pytest.raises(ConfigError, match="number of batches is missing") as caught:
        check(method(batches=None))
    assert "--expected-records" in caught.value.cure
    assert "not from counting it" in caught.value.cure


def test_a_schema_of_no_records_or_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not records"):
        check(method(json_schema=schema(tmp_path)))
    (tmp_path / "broken.json").write_text("{", "utf-8")
    with pytest.raises(ConfigError, match=r"broken\.json cannot be read"):
        check(method(json_schema=str(tmp_path / "broken.json")), columns=("title",))


def test_a_model_whose_public_logits_are_not_finite_is_refused() -> None:
    class Broken(ScriptModel):
        def contexts(self, rows: Any, **options: Any) -> Any:
            made = super().contexts(rows, **options)

            def public_logits() -> Any:
                raise ModelError("The logits are not finite.", "Use another model.")

            made.public_logits = public_logits
            return made

    with pytest.raises(ModelError):
        check(method(), Broken())


@pytest.mark.parametrize("sparse", [False, True])
def test_where_the_public_logits_fail_in_a_text_it_is_stored_as_it_is(sparse: bool) -> None:
    class Overflowing(ScriptModel):
        def contexts(self, rows: Any, **options: Any) -> Any:
            made = super().contexts(rows, **options)
            finite = made.public_logits

            def public_logits(*, whole: bool = False) -> Any:
                if len(made._drawn) >= 2:
                    raise ModelError("The logits are not finite.", "Use another model.")
                return finite(whole=whole)

            made.public_logits = public_logits
            return made

    chosen = method(sparse_vector=sparse, tokens_per_batch=6, unfinished="keep", texts_per_batch=3)
    made = release(chosen, model=Overflowing(alike(None)))
    assert set(made.arrays["tokens"].tolist()) == {2}
    assert not made.arrays["ended"].any()


# Where it is stopped


class Slow(ScriptModel):
    """Each step takes a moment, so that all batches are in flight as one fails."""

    def logits(self, text: bytes, drawn: bytes) -> Any:
        time.sleep(0.0005)
        return super().logits(text, drawn)


def running_workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("understudy-model")]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
def test_where_one_batch_fails_the_others_stop_and_no_part_of_a_text_is_stored(error: type[BaseException]) -> None:
    class Failing(Scripted):
        def choose(self, utilities: Any, *, scale: float) -> int:
            super().choose(utilities, scale=scale)
            if self.choices >= 20:  # threads count at once, and 20 itself may be skipped
                raise error
            return ord("x")

    store, noise = Store(), Failing()
    model = Slow(alike(None), in_flight=6)
    with pytest.raises(error):
        release(method(tokens_per_batch=400, unfinished="keep"), [], noise=noise, store=store, model=model)
    assert not running_workers()
    assert noise.choices < 1200, "of 2,400: they stop as soon as this thread hears of it, on a busy machine too"
    assert all(len(each["tokens"]) == 8 for each in store.kept.values())
    release(method(tokens_per_batch=16, unfinished="keep"), [], store=store, model=ScriptModel(alike(None)))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1234 MiB."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1234 bytes."),
        MemoryError(),
    ],
    ids=["GPU", "torch", "Python"],
)
def test_a_batch_that_does_not_fit_into_memory_says_so_and_not_how_large_it_is(error: Exception) -> None:
    class Full(ScriptModel):
        def contexts(self, rows: Any, **options: Any) -> Any:
            if len(rows) > 1:
                raise error
            return super().contexts(rows, **options)

    with pytest.raises(ModelError, match="do not fit into memory") as caught:
        release(method(), model=Full())
    assert caught.value.__context__ is None
    assert "1234" not in str(caught.value)


def test_an_interrupt_from_the_keyboard_stops_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(line: str) -> None:
        if "of 6; texts" in line:
            raise KeyboardInterrupt

    told = Told()
    told.said = type("Interrupting", (list,), {"append": lambda self, line: interrupted(line)})()

    class Waiting(ScriptModel):
        """Two batches are decoded, the third is begun and goes on when it has been asked to stop."""

        def contexts(self, rows: Any, **options: Any) -> Any:
            if next(begun) >= 2:
                asked.wait(60)
            return super().contexts(rows, **options)

    begun, asked, ask = count(), threading.Event(), Stop.ask
    monkeypatch.setattr(Stop, "ask", lambda stop: (ask(stop), asked.set()))
    store = Store()
    rows = [Row("alone", 0)]
    with pytest.raises(KeyboardInterrupt):
        release(method(tokens_per_batch=12), rows, model=Waiting(echo(3), in_flight=2), store=store, told=told)
    assert not running_workers()
    assert len(store.kept) <= 2 * 3
    made = release(method(tokens_per_batch=12), rows, model=ScriptModel(echo(3)), store=store)
    assert made.strings == release(method(tokens_per_batch=12), rows, model=ScriptModel(echo(3))).strings


def test_no_more_contexts_are_held_than_batches_in_flight() -> None:
    for in_flight in (1, 3):
        model = ScriptModel(echo(2), in_flight=in_flight)
        release(method(), model=model)
        assert model.most_open <= in_flight
        assert model.open_contexts == 0


# What leaves


def test_what_is_told_and_kept_apart() -> None:
    told = Told()
    release(method(), [Row("a private text that is cut", 0), Row("short", 1)], told=told)
    assert told.diary == [{"private texts cut": 1, "to tokens": [16] * LABELS}]
    assert told.said[0] == "Batches to decode texts for: 6, 1 at a time, with script@000000000000."
    assert told.said[-1] == "Batches done: 6 of 6; texts: 18; private tokens in all: 72."
    assert len(told.said) == 7
    assert not any("cut" in line or "private text" in line for line in told.said)


def test_the_statement_has_what_was_public() -> None:
    made = release(method())
    assert made.public_inputs["private model"] == {"source": "script", "sha256": "0" * 64}
    assert made.public_inputs["prompts"]["source"] == "for a note"
    assert "floating-point" in made.notes[0]
    other = release(method(prompt_form="completion"), max_tokens=5)
    assert other.public_inputs["prompts"] == made.public_inputs["prompts"]


def test_seeded_noise_repeats_though_several_batches_could_be_in_flight() -> None:
    told = Told()
    model = ScriptModel(alike(None), in_flight=6)
    once, again, other = (
        release(
            method(unfinished="keep", temperature=50.0), noise=InsecureSeededNoise(seed), model=model, told=told
        ).strings
        for seed in (7, 7, 8)
    )
    assert once == again != other
    assert "1 at a time" in told.said[0]


# -- the texts are handed out -----------------------------------------------------------------------------------------


def released(labels: bool = True, **options: Any) -> Release:
    chosen = method(unfinished="keep", tokens_per_batch=14, **options)
    made = release(chosen, [Row(f"text {number}", number % LABELS) for number in range(9)], model=ScriptModel(echo(3)))
    plan = plan_of(chosen)
    statement = Statement.of(plan, public_inputs=made.public_inputs, labels_declared=True, dataset="notes")
    return Release(
        method="private-prediction",
        parameters=chosen.dump(),
        schema=PublicSchema("text", "topic" if labels else None, NAMES.names if labels else ()),
        statement=statement,
        arrays={name: np.asarray(array) for name, array in made.arrays.items()},
        strings=made.strings,
    )


def available(made: Release) -> Sequence[int] | None:
    return method().available(made)


def generate(made: Release, counts: Sequence[int]) -> Iterator[SyntheticRecord]:
    return method().generate(made, counts, tools=None)  # type: ignore[arg-type]  # it samples nothing


def test_as_many_as_are_asked_for_batches_in_turn() -> None:
    made = released()
    assert available(made) == [8, 8, 8], "two batches of three texts of 4 tokens, and one of 2"
    records = list(generate(made, [5, 0, 8]))
    assert [record.label for record in records] == [0] * 5 + [2] * 8
    assert [(record.provenance["number"], record.provenance["batch"]) for record in records[:5]] == [
        *((0, 0), (0, 1), (1, 0), (1, 1), (2, 0))
    ]
    assert records[0].provenance == {"batch": 0, "number": 0, "tokens": 4, "private_tokens": 4, "ended": True}
    assert not records[-1].provenance["ended"]
    assert sorted(record.text for record in records[5:]) == sorted(made.strings["texts"][16:])


def test_more_than_there_are_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(ReleaseError, match=r"\(a 8, b 8, c 8\)") as caught:
        generate(released(), [8, 9, 0])
    assert "--continue" in caught.value.cure


def test_a_release_that_holds_nothing_hands_out_nothing() -> None:
    chosen = method(tokens_per_batch=2)
    made = release(chosen, [], model=ScriptModel(echo(3)), store=Store())
    arrays = {name: np.asarray(array) for name, array in made.arrays.items()}
    empty = replace(released(), arrays=arrays, strings=made.strings)
    assert available(empty) == [0, 0, 0]
    assert list(generate(empty, [0, 0, 0])) == []
