"""Private tokens and runs of the test are counted exactly, wherever the process dies; nothing stored is redrawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from predictions import Died, Scripted, Store, method, release
from script_model import ScriptModel, alike, echo, spell
from tiny_corpora import LABELS, Row

from understudy.privacy.tokens import BatchTokens

TOKENS = 12
PLACES = ("before the draw", "before it is stored", "before it is confirmed")
BATCHES = [f"{label}/{number}" for label in range(LABELS) for number in range(2)]


VECTOR = {"sparse_vector": True}


def sometimes_far(text: bytes, drawn: bytes) -> int:
    """Near to public but for every third token."""
    return echo(None)(text if len(drawn) % 3 == 2 else b"", drawn)


MODELS = {"far": echo(None), "near": alike(None), "now and then": sometimes_far, "short": echo(2)}


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
        runs = TOKENS + 1 if options["chosen"].sparse_vector else 0
        assert all(tokens <= TOKENS and begun <= runs for tokens, begun in map(store.spent, BATCHES))
    assert made is not None
    return made


@pytest.mark.parametrize("options", [{}, VECTOR], ids=["all private", "sparse vector"])
@pytest.mark.parametrize("says", MODELS)
def test_deaths_anywhere_never_draw_more_than_is_paid_for(says: str, options: dict[str, Any]) -> None:
    random = np.random.default_rng(0)
    for _ in range(2):
        deaths = [(int(call), PLACES[random.integers(3)]) for call in random.integers(1, 5, 4)]
        deaths += random.integers(1, 60, 3).tolist()
        random.shuffle(deaths)
        store = Store()
        model = ScriptModel(MODELS[says])
        run_to_the_end(store, deaths, chosen=method(**options), model=model)
        assert len(store.drawn) == len(set(store.drawn)) == len(store.kept)
        if not options:
            assert [store.spent(batch) for batch in BATCHES] == [(TOKENS, 0)] * len(BATCHES), "all is used"


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


# So high a threshold that every token is public.
PUBLIC = 2**40


def deaths_after_each_text(store: Store, times: int) -> int:
    """Die after each text, of two public tokens and the end, so that each run stays open; return how many began."""
    thresholds = 0
    chosen = method(batches=1, tokens_per_batch=3, texts_per_batch=times, **VECTOR)
    for _ in range(times):
        store.live((2, "before the draw"))
        noise = Scripted(threshold=PUBLIC)
        with pytest.raises(Died):
            release(chosen, [], noise=noise, store=store, model=ScriptModel(alike(2)))
        thresholds += noise.thresholds
    return thresholds


def test_a_run_of_the_test_that_was_open_as_the_process_died_counts_as_spent() -> None:
    store = Store()
    assert deaths_after_each_text(store, 5) == 4
    assert store.spent("0/0") == (3, 4), "without a run that is left every token is private"


def test_a_run_that_was_open_and_is_not_counted_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    init = BatchTokens.__init__

    def forgetful(self: BatchTokens, *words: Any, tokens_spent: int, runs_spent: int) -> None:
        init(self, *words, tokens_spent=tokens_spent, runs_spent=min(runs_spent, tokens_spent))

    monkeypatch.setattr(BatchTokens, "__init__", forgetful)
    store = Store()
    assert deaths_after_each_text(store, 6) == 6
    assert store.spent("0/0") == (0, 6)


def test_a_batch_that_is_found_near_to_public_for_ever_ends_all_the_same() -> None:
    store = Store()
    made = release(method(**VECTOR), model=ScriptModel(alike(2)), store=store, noise=Scripted(threshold=PUBLIC))
    assert all(store.spent(batch) == (0, 1) for batch in BATCHES)
    assert len(store.kept) == TOKENS * len(BATCHES), "no more texts than private tokens"
    assert not made.arrays["private"].any()
    assert made.noise_check["private_tokens_left"] == TOKENS * len(BATCHES)


def rows_in_full_batches() -> list[Row]:
    """As many in each batch as declared, so that rows like the public one are near to it."""
    return [Row(f"text {number}", 0) for number in range(10)]


@pytest.mark.parametrize(
    ("says", "private", "spent"),
    [
        (alike(None), [False] * 8, (0, 1)),
        (echo(None), [True] * 8, (8, 8)),
        (sometimes_far, [False, False, True] * 2 + [False] * 2, (2, 3)),  # the third run is still open
    ],
)
def test_rows_like_the_public_one_cost_runs_and_far_ones_private_tokens(says: Any, private: Any, spent: Any) -> None:
    store, chosen = Store(), method(batches=1, batch_size=10, texts_per_batch=1, **VECTOR)
    release(chosen, rows_in_full_batches(), model=ScriptModel(says), store=store)
    assert store.kept["tokens/0/0/0"]["private"].tolist() == private
    assert store.spent("0/0") == spent


@pytest.mark.parametrize("tokens", [1, 2])
def test_public_tokens_may_follow_the_last_private_one_and_no_private_one_may(tokens: int) -> None:
    store, chosen = Store(), method(batches=1, batch_size=10, tokens_per_batch=tokens, unfinished="keep", **VECTOR)
    made = release(chosen, rows_in_full_batches(), model=ScriptModel(sometimes_far), store=store)
    (text,) = [value for name, value in store.kept.items() if name.startswith("tokens/0/0/")]
    assert text["private"].tolist() == [False, False, True] * tokens + [False] * 2
    assert store.spent("0/0") == (tokens, tokens + 1)
    assert made.noise_check["texts"][0] == 1


def test_without_a_private_token_where_one_is_due_the_text_is_left_unfinished() -> None:
    rows = rows_in_full_batches()
    for unfinished, held in (("drop", 3), ("keep", 4)):
        store = Store()
        chosen = method(batches=1, batch_size=10, tokens_per_batch=14, unfinished=unfinished)
        made = release(chosen, rows, model=ScriptModel(echo(3)), store=store)
        assert store.spent("0/0") == (14, 0)
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
    assert [store.spent(batch) for batch in BATCHES] == [(TOKENS, 0)] * len(BATCHES)
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
    assert store.spent("0/0") == (len(RECORD), 0), "two texts, and a part of a third"


def test_several_batches_at_once_draw_the_same_texts_as_one_at_a_time() -> None:
    one = release(method(), model=ScriptModel(echo(3), in_flight=1))
    several = release(method(), model=ScriptModel(echo(3), in_flight=6))
    assert several.strings == one.strings
    assert {name: array.tolist() for name, array in several.arrays.items()} == {
        name: array.tolist() for name, array in one.arrays.items()
    }
