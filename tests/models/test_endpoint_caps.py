"""Caps on tokens and money hold at the worst case, and keep what was answered."""

from __future__ import annotations

import pytest
from endpoint_fixtures import ask, chat, clean_environment_fixture, echo, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, answer, error
from test_cached import MemoryStore

from understudy.base.errors import ModelError
from understudy.models.collect import CachedChat, collect

A_TOKEN = {"price_per_million_input": 1e6, "price_per_million_output": 1e6}
"""Costs one."""


@pytest.mark.parametrize("at_once", [1, 16])
def test_a_cap_stops_before_it_would_be_exceeded(endpoint: FakeEndpoint, at_once: int) -> None:
    endpoint.plan = lambda number, seen: answer(usage=(10, 90), delay=0.005)
    model = chat(endpoint, spending_cap=1000, **A_TOKEN, max_concurrency=at_once)
    done: list[int] = []
    with pytest.raises(ModelError, match="spending cap") as caught:
        collect(model, [ask(f"question {n}", max_tokens=90) for n in range(50)], progress=done.append)
    assert "--spending-cap" in caught.value.cure
    assert "resumes" in caught.value.cure
    assert len(done) == len(endpoint.seen)
    assert 800 <= model.budget.used.tokens <= 1000


def test_a_spending_cap_counts_both_prices(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(usage=(10, 90))
    prices = {"price_per_million_input": 1000.0, "price_per_million_output": 10000.0}
    model = chat(endpoint, spending_cap=10.0, **prices)
    with pytest.raises(ModelError, match="spending cap") as caught:
        collect(model, [ask(f"question {n}", max_tokens=90) for n in range(50)])
    assert "--spending-cap" in caught.value.cure
    assert 8.0 <= model.budget.cost(model.budget.used) <= 10.0


def test_short_answers_give_their_reservation_back(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(usage=(1, 1), delay=0.002)
    model = chat(endpoint, spending_cap=1000, **A_TOKEN, max_concurrency=8)
    assert len(collect(model, [ask(f"question {n}", max_tokens=400) for n in range(30)])) == 30
    assert model.budget.used.tokens == 60


def test_the_cap_holds_over_several_calls(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(usage=(10, 90))
    model = chat(endpoint, spending_cap=250, **A_TOKEN)
    collect(model, [ask(max_tokens=90)])
    collect(model, [ask(max_tokens=90)])
    with pytest.raises(ModelError, match="spending cap"):
        collect(model, [ask(max_tokens=90)])
    assert len(endpoint.seen) == 2


def test_usage_that_is_not_reported_counts_as_the_worst(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(usage=None)
    model = chat(endpoint)
    collect(model, [ask(max_tokens=90)])
    assert model.budget.used.completion_tokens == 90


def test_a_broken_try_counts_as_the_worst_and_a_refused_one_as_nothing(endpoint: FakeEndpoint) -> None:
    replies = [error(500), answer(drop="middle"), error(429), answer(usage=(10, 5))]
    endpoint.plan = lambda number, seen: replies[number]
    model = chat(endpoint)
    collect(model, [ask(max_tokens=90)])
    assert model.budget.used.completion_tokens == 95


def test_a_run_stopped_by_its_cap_resumes_where_it_was(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer(f"echo of {seen.prompt}", usage=(10, 90))
    requests = [ask(f"question {n}", max_tokens=90) for n in range(20)]
    store = MemoryStore()
    with pytest.raises(ModelError, match="spending cap"):
        collect(CachedChat(chat(endpoint, spending_cap=1000, **A_TOKEN), store), requests)
    assert len(store.items) == len(endpoint.seen)
    completions = collect(CachedChat(chat(endpoint), store), requests)
    assert [completion.text for completion in completions] == [f"echo of question {n}" for n in range(20)]
    assert len(endpoint.seen) == 20
