"""Private tokens are counted exactly, wherever the process dies; nothing stored is redrawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from predictions import Died, Scripted, Store, method, release
from script_model import ScriptModel, alike, echo, spell
from tiny_corpora import LABELS, Row

TOKENS = 12
PLACES = ("before the draw", "before it is stored", "before it is confirmed")
BATCHES = [f"{label}/{number}" for label in range(LABELS) for number in range(2)]


MODELS = {"far": echo(None), "near": alike(None), "short": echo(2)}


def run_to_the_end(store: Store, deaths: Iterable[Any], **options: Any) -> Any:
    """Release, dying as often as ``deaths`` says; the stored texts are the same ever after."""
    for death in [*deaths, None]:
        before = {name: value["tokens"].tolist() for name, value in store.kept.items()}
        store.live(death if isinstance(death, tuple) else None)
        noise = Scripted(dies_at=death if isinstance(death, int) else None)
        try:
            made = release(noise=noise, store=store, **options)
        except (Died, KeyboardInterrupt):
            made = None
        assert all(store.kept[name]["tokens"].tolist() == tokens for name, tokens in before.items())
        assert all(store.spent(batch) <= TOKENS for batch in BATCHES)
    assert made is not None
    return made


@pytest.mark.slow
@pytest.mark.parametrize("says", MODELS)
def test_deaths_anywhere_never_draw_more_than_is_paid_for(says: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(2):
        deaths = [(int(call), PLACES[random.integers(3)]) for call in random.integers(1, 5, 4)]
        deaths += random.integers(1, 60, 3).tolist()
        random.shuffle(deaths)
        store = Store()
        model = ScriptModel(MODELS[says])
        run_to_the_end(store, deaths, chosen=method(), model=model)
        assert len(store.drawn) == len(set(store.drawn)) == len(store.kept)
        assert [store.spent(batch) for batch in BATCHES] == [TOKENS] * len(BATCHES), "all is used"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", range(1, 8))
def test_a_death_around_any_text_ends_in_the_texts_of_a_run_without_one(call: int, place: str) -> None:
    whole = release(method(tokens_per_batch=8), model=ScriptModel(echo(3)))
    store = Store()
    made = run_to_the_end(store, [(call, place)], chosen=method(tokens_per_batch=8), model=ScriptModel(echo(3)))
    assert made.strings == whole.strings
    assert {name: array.tolist() for name, array in made.arrays.items()} == {
        name: array.tolist() for name, array in whole.arrays.items()
    }


def rows_in_full_batches() -> list[Row]:
    """As many in each batch as declared, so that rows like the public one are near to it."""
    return [Row(f"text {number}", 0) for number in range(10)]


def test_without_a_private_token_where_one_is_due_the_text_is_left_unfinished() -> None:
    rows = rows_in_full_batches()
    for unfinished, held in (("drop", 3), ("keep", 4)):
        store = Store()
        chosen = method(batches=1, batch_size=10, tokens_per_batch=14, unfinished=unfinished)
        made = release(chosen, rows, model=ScriptModel(echo(3)), store=store)
        assert store.spent("0/0") == 14
        assert not store.kept["tokens/0/0/3"]["ended"]
        assert made.noise_check["texts"] == (held,) * LABELS
        assert ("batch's last 3" in made.noise_check["texts_left_out"]) == (unfinished == "drop")


def test_a_release_stops_where_it_is_told_and_goes_on_with_the_rest() -> None:
    store = Store()
    first = release(method(texts_per_batch=1), store=store)
    left = "private_tokens_left"
    assert first.noise_check[left] == (TOKENS - 4) * len(BATCHES)
    kept = dict(store.kept)
    second = release(method(texts_per_batch=2), store=store)
    assert second.noise_check[left] == (TOKENS - 8) * len(BATCHES)
    third = release(method(), store=store)
    assert third.noise_check[left] == 0
    assert all(store.kept[name] is kept[name] for name in kept)
    assert [store.spent(batch) for batch in BATCHES] == [TOKENS] * len(BATCHES)
    assert third.strings == release(method()).strings, "as in one go"


RECORD = '{"title": "Rain", "year": 1954}'


def test_what_must_follow_in_a_record_is_written_and_costs_nothing() -> None:
    store = Store()
    model = ScriptModel(spell(RECORD, '{"title":'))
    chosen = method(batches=1, tokens_per_batch=len(RECORD), top_k=0)
    made = release(chosen, [], model=model, store=store, columns=("title", "year"), max_tokens=60)
    assert set(made.strings["texts"]) == {RECORD}
    text = store.kept["tokens/0/0/0"]
    written = bytes(text["tokens"][~text["private"]].tolist()).decode()
    assert ' "year":' in written
    assert int(text["private"].sum()) == len(text["tokens"]) - len(written)
    assert store.spent("0/0") == len(RECORD), "two texts, and a part of a third"


def test_several_batches_at_once_draw_the_same_texts_as_one_at_a_time() -> None:
    one = release(method(), model=ScriptModel(echo(3), in_flight=1))
    several = release(method(), model=ScriptModel(echo(3), in_flight=6))
    assert several.strings == one.strings
    assert {name: array.tolist() for name, array in several.arrays.items()} == {
        name: array.tolist() for name, array in one.arrays.items()
    }
