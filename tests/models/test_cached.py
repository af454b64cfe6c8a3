"""Stored before shown, never paid twice; and a plain list of completions from any event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

import pytest

from understudy.base.errors import ModelError
from understudy.models.collect import CachedChat, collect
from understudy.models.types import ChatRequest, Completion, FinishReason, Message


class MemoryStore:
    def __init__(self) -> None:
        self.items: dict[str, str] = {}
        self.blank: dict[str, int] = {}
        self.writes = 0

    def get_many(self, keys: Sequence[str]) -> dict[str, str]:
        return {key: self.items[key] for key in keys if key in self.items}

    def put_many(self, items: Mapping[str, str]) -> None:
        self.writes += 1
        self.items.update(items)

    def put_blank(self, items: Mapping[str, str]) -> None:
        for key in items if self.items else ():
            self.blank[key] = self.blank.get(key, 0) + 1
            if self.blank[key] == 3:
                self.items[key] = items[key]


class FakeChat:
    """Answers the last request first; what ``script`` says for a prompt comes instead of its echo."""

    model_id = "fake:1"

    def __init__(self, script: Mapping[str, Completion | Exception] | None = None) -> None:
        self.script = script or {}
        self.asked: list[ChatRequest] = []
        self.running = threading.Event()
        self.closed = False

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        self.asked += requests
        try:
            for index in reversed(range(len(requests))):
                await asyncio.sleep(0)
                prompt = requests[index].messages[-1].content
                outcome = self.script.get(prompt, Completion(f"echo of {prompt}", "stop", 3, 4))
                if isinstance(outcome, Exception):
                    raise outcome
                if prompt == "never":
                    self.running.set()
                    await asyncio.sleep(60)
                yield index, outcome
        finally:
            self.closed = True


def asks(*prompts: str, sample: int = 0) -> list[ChatRequest]:
    return [ChatRequest((Message("user", prompt),), sample=sample) for prompt in prompts]


def texts(completions: Sequence[Completion]) -> list[str]:
    return [completion.text for completion in completions]


def test_only_the_missing_are_asked_and_the_stored_come_first() -> None:
    model, store = FakeChat(), MemoryStore()
    first, second = (collect(CachedChat(model, store), asks("b", "d")) for _ in range(2))
    assert texts(first) == texts(second) == ["echo of b", "echo of d"]

    async def order() -> list[int]:
        return [index async for index, _ in CachedChat(model, store).complete(asks("a", "b", "c", "d"))]

    indices = asyncio.run(order())
    assert sorted(indices[:2]) == [1, 3]
    assert sorted(indices) == [0, 1, 2, 3]
    assert [request.messages[0].content for request in model.asked] == ["b", "d", "a", "c"]


def test_identical_requests_are_sent_once_and_samples_are_not_identical() -> None:
    model = FakeChat()
    completions = collect(CachedChat(model, MemoryStore()), [*asks("a", "b", "a", "a"), *asks("a", sample=1)])
    assert texts(completions) == ["echo of a", "echo of b", "echo of a", "echo of a", "echo of a"]
    assert len(model.asked) == 3


def test_an_answer_is_stored_before_it_is_yielded() -> None:
    store = MemoryStore()
    requests = asks(*(f"question {n}" for n in range(500)))

    async def check() -> None:
        async for index, _ in CachedChat(FakeChat(), store).complete(requests):
            assert requests[index].key("fake:1") in store.items

    asyncio.run(check())
    assert store.writes < 100


def test_failures_are_yielded_and_never_stored_and_asked_again() -> None:
    model, store = FakeChat({"b": Completion("", "failed", error="busy")}), MemoryStore()
    assert [done.finish_reason for done in collect(CachedChat(model, store), asks("a", "b"))] == ["stop", "failed"]
    assert len(store.items) == 1
    model.script = {}
    assert texts(collect(CachedChat(model, store), asks("a", "b"))) == ["echo of a", "echo of b"]


@pytest.mark.parametrize("finish", ["empty", "filtered", "stop"])
def test_answers_without_text_are_asked_for_three_times_and_then_final(finish: FinishReason) -> None:
    model, store = FakeChat({"a": Completion(" \n", finish, 3, 9)}), MemoryStore()
    found = [collect(CachedChat(model, store), asks("a", "b"))[0] for _ in range(5)]
    assert [request.messages[-1].content for request in model.asked] == ["a", "b", "a", "a"]
    assert all(completion.blank for completion in found)
    assert [completion.error is None for completion in found] == [False, False, False, True, True]


def test_while_a_model_writes_nothing_at_all_its_answers_do_not_count() -> None:
    model, store = FakeChat({"a": Completion("", "filtered"), "b": Completion("", "empty")}), MemoryStore()
    for _ in range(5):
        assert all(completion.error for completion in collect(CachedChat(model, store), asks("a", "b")))
    model.script = {}
    assert texts(collect(CachedChat(model, store), asks("a", "b"))) == ["echo of a", "echo of b"]
    assert len(model.asked) == 12


def test_answers_before_an_error_are_stored_and_yielded() -> None:
    model, store = FakeChat({"a": ModelError("No.", "Yes.")}), MemoryStore()
    done: list[int] = []
    with pytest.raises(ModelError, match="No"):
        collect(CachedChat(model, store), asks("a", "b", "c"), progress=done.append)
    assert len(store.items) == 2
    assert done == [1, 2]


def test_closing_early_stores_what_came_in_and_closes_the_model() -> None:
    model, store = FakeChat(), MemoryStore()

    async def first_only() -> int:
        async with aclosing(CachedChat(model, store).complete(asks("a", "never", "b", "c"))) as stream:  # type: ignore[type-var]
            async for _ in stream:
                break
        return len(asyncio.all_tasks())

    assert asyncio.run(first_only()) == 1
    assert model.closed
    assert len(store.items) == 2


def test_a_store_that_fails_ends_the_run_before_anything_is_shown() -> None:
    class FullStore(MemoryStore):
        def put_many(self, items: Mapping[str, str]) -> None:
            raise OSError("disk full")

    done: list[int] = []
    with pytest.raises(OSError, match="disk full"):
        collect(CachedChat(FakeChat(), FullStore()), asks("a", "b"), progress=done.append)
    assert done == []


def test_collect_works_inside_a_running_event_loop_and_raises_the_models_error() -> None:
    async def notebook(**script: Completion | Exception) -> list[Completion]:
        return collect(FakeChat(script), asks("a", "b"))

    assert texts(asyncio.run(notebook())) == ["echo of a", "echo of b"]
    with pytest.raises(ModelError, match="No"):
        asyncio.run(notebook(a=ModelError("No.", "Yes.")))


def test_a_model_that_leaves_requests_unanswered_is_an_error() -> None:
    class Lazy(FakeChat):
        async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
            yield 0, Completion("only one", "stop")

    with pytest.raises(ModelError, match="unanswered"):
        collect(Lazy(), asks("a", "b"))


@pytest.mark.parametrize("in_notebook", [False, True])
@pytest.mark.skipif(os.name == "nt", reason="sends itself a signal")
def test_ctrl_c_ends_the_collection_and_keeps_what_came_in(in_notebook: bool) -> None:
    model, store = FakeChat(), MemoryStore()
    cached = CachedChat(model, store)

    def interrupt() -> None:
        model.running.wait()
        os.kill(os.getpid(), signal.SIGINT)

    async def notebook() -> None:
        # what a notebook does: its own loop takes no signals, so Ctrl-C meets the cell that runs
        signal.signal(signal.SIGINT, signal.default_int_handler)
        collect(cached, asks("never", "b"))

    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(notebook()) if in_notebook else collect(cached, asks("never", "b"))
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    patience = time.monotonic() + 10
    while not model.closed and time.monotonic() < patience:  # the notebook's helper thread may still be closing
        time.sleep(0.01)
    assert model.closed
    assert len(store.items) == 1


def test_an_answer_is_on_disk_before_the_next_one_comes() -> None:
    """A kill loses nothing but what is being written."""
    store = MemoryStore()
    stored: list[int] = []

    class Slow(FakeChat):
        async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
            for index in range(len(requests)):
                yield index, Completion("text", "stop")
                patience = time.monotonic() + 10
                while len(store.items) <= index and time.monotonic() < patience:
                    await asyncio.sleep(0.001)
                stored.append(len(store.items))

    collect(CachedChat(Slow(), store), asks(*"abcd"))
    assert stored == [1, 2, 3, 4]
