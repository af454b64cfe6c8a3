"""How much of an answer is read, how long nobody is waited for, and what is said meanwhile."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import openai
import pytest
from endpoint_fixtures import ask, by_prompt, chat, clean_environment_fixture, echo, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, Reply, answer, error
from test_cached import MemoryStore

from understudy.base.errors import ModelError
from understudy.models import endpoint as endpoints
from understudy.models import limits
from understudy.models.collect import CachedChat, collect
from understudy.models.connection import BodyTooLong, open_client
from understudy.models.endpoint import EndpointChat
from understudy.models.limits import CHARACTERS_PER_TOKEN, LEAST_BODY_BYTES, LEAST_CHARACTERS, Breaker
from understudy.models.presets import PRESETS


def test_an_answer_of_megabytes_is_not_read_and_fails(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("x" * 2_000_000) if seen.prompt == "question 1" else echo(number, seen)
    completions = collect(chat(endpoint), questions(3))
    assert [completion.finish_reason for completion in completions] == ["stop", "failed", "stop"]
    assert "its answer is longer than 1,048,576 bytes" in (completions[1].error or "")
    assert len(endpoint.seen) == 3, "it would cost as much again"


def test_an_answer_that_is_longer_than_its_tokens_allow_is_cut(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("word " * 20_000)
    small, large = collect(chat(endpoint), [ask("a", max_tokens=4), ask("b", max_tokens=160)])
    assert (len(small.text), small.finish_reason) == (LEAST_CHARACTERS, "length")
    assert (len(large.text), large.finish_reason) == (160 * CHARACTERS_PER_TOKEN, "length")
    long = "word " * (LEAST_BODY_BYTES // 4)
    endpoint.plan = lambda number, seen: answer(long)
    (completion,) = collect(chat(endpoint), [ask(max_tokens=60_000)])
    assert completion.text == long


def test_a_compressed_answer_is_not_unpacked(endpoint: FakeEndpoint) -> None:
    body = gzip.compress(answer("x" * 50_000_000).body)
    endpoint.plan = lambda number, seen: Reply(body, headers={"Content-Encoding": "gzip"})
    (completion,) = collect(chat(endpoint), questions(1))
    assert "compresses its answers" in (completion.error or "")
    assert {seen.headers["accept-encoding"] for seen in endpoint.seen} == {"identity"}


def test_what_a_content_filter_withheld_is_no_text(endpoint: FakeEndpoint) -> None:
    endpoint.plan = lambda number, seen: answer("The begin", finish_reason="content_filter")
    (completion,) = collect(chat(endpoint), questions(1))
    assert (completion.text, completion.finish_reason) == ("", "filtered")
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("reply", [answer(drop="before"), error(500), error(502), Reply(b"<html>")])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_an_endpoint_that_never_answered_is_given_up_after_three_tries_of_what_was_sent(
    endpoint: FakeEndpoint, reply: Reply, concurrency: int
) -> None:
    endpoint.plan = lambda number, seen: reply
    done: list[int] = []
    with pytest.raises(ModelError, match="does not answer"):
        collect(chat(endpoint, max_concurrency=concurrency), questions(40), progress=done.append)
    assert len(endpoint.seen) <= 4 * concurrency
    assert not any(done), "none was answered"


def test_an_endpoint_that_has_answered_is_waited_for(endpoint: FakeEndpoint) -> None:
    """Also by the next call of the same client, which begins with failures."""
    model = chat(endpoint, max_concurrency=2)
    collect(model, questions(1))
    endpoint.plan = by_prompt(*[error(500)] * 5)
    assert [completion.text for completion in collect(model, questions(4))] == [
        f"echo of question {n}" for n in range(4)
    ]


def test_an_endpoint_that_says_it_is_starting_is_waited_for_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(limits.time, "monotonic", lambda: now)
    breaker = Breaker(requests_at_once=1, tries=7)
    for _ in range(100):
        breaker.broken("it is not ready", starting=True)
    now += limits.STARTING_SECONDS
    with pytest.raises(ModelError, match="it is not ready"):
        breaker.broken("it is not ready", starting=True)


def test_a_busy_endpoint_is_not_taken_for_a_dead_one(endpoint: FakeEndpoint) -> None:
    endpoint.plan = by_prompt(*[error(429, retry_after="0")] * 6)
    assert all(completion.text for completion in collect(chat(endpoint, max_concurrency=2), questions(4)))


def test_the_bound_on_a_body_is_that_of_the_client(endpoint: FakeEndpoint) -> None:
    async def fetch(most: int) -> Any:
        async with open_client(endpoint.base_url, None, most_bytes=most) as client:
            return await client.post("/chat/completions", cast_to=object, body={})

    size = len(answer().body)
    assert asyncio.run(fetch(size))["object"] == "chat.completion"
    with pytest.raises((openai.APIConnectionError, BodyTooLong)):
        asyncio.run(fetch(size - 1))


# Costs one.
A_TOKEN = {"price_per_million_input": 1e6, "price_per_million_output": 1e6}


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


def test_unknown_usage_counts_as_the_worst_and_a_refused_try_as_nothing(endpoint: FakeEndpoint) -> None:
    replies = [error(500), answer(drop="middle"), error(429), answer(usage=(10, 5)), answer(usage=None)]
    endpoint.plan = lambda number, seen: replies[number]
    model = chat(endpoint)
    collect(model, [ask(max_tokens=90)])
    assert model.budget.used.completion_tokens == 95
    collect(model, [ask(max_tokens=90)])
    assert model.budget.used.completion_tokens == 95 + 90


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


# -- which key goes where, and through which proxy and certificate ----------------------------------------------------


SECRETS = {
    "OPENAI_API_KEY": "sk-hosted",
    "OPENAI_ADMIN_KEY": "sk-admin",
    "OPENAI_ORG_ID": "org-private",
    "OPENAI_PROJECT_ID": "proj-private",
    "OPENAI_CUSTOM_HEADERS": "X-Secret: custom-private\nAuthorization: Bearer sk-custom",
}


@pytest.fixture
def hosted_environment(monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("hosted_environment")
@pytest.mark.parametrize("key", [{}, {"authorization": "Bearer local-key"}], ids=["no key", "a named key"])
def test_nothing_but_a_named_key_reaches_another_address(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, key: dict[str, str]
) -> None:
    monkeypatch.setenv("MY_KEY", " local-key\n")
    model = chat(endpoint, api_key_env="MY_KEY" if key else None)
    collect(model, questions(3))
    asyncio.run(model.list_models())
    allowed = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"}
    for seen in endpoint.seen:
        assert {name: value for name, value in seen.headers.items() if name not in allowed} == key
        assert not any(word in str(seen.headers) for word in ("sk-", "private", "openai-"))
    assert len(endpoint.seen) == 4


@pytest.mark.usefixtures("hosted_environment")
def test_the_hosted_address_gets_the_hosted_key(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    here = replace(PRESETS["openai"], address=endpoint.base_url, key_hosts=r"127\.0\.0\.1")
    monkeypatch.setitem(PRESETS, "openai", here)  # type: ignore[arg-type]
    collect(EndpointChat("gpt"), questions(1))
    collect(EndpointChat("gpt", base_url=endpoint.base_url + "/"), questions(1))
    assert [seen.headers["authorization"] for seen in endpoint.seen] == ["Bearer sk-hosted"] * 2


def test_no_base_url_is_the_hosted_address_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        EndpointChat("gpt")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hosted")
    assert EndpointChat("gpt").model_id == "openai:gpt@https://api.openai.com/v1"


def test_redirects_carry_no_key_or_prompt_elsewhere(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "local-key")
    with FakeEndpoint() as elsewhere:
        location = {"Location": f"{elsewhere.base_url}/chat/completions"}
        endpoint.plan = lambda number, seen: Reply(status=307, headers=location)
        with pytest.raises(ModelError, match="redirects"):
            collect(chat(endpoint, api_key_env="MY_KEY"), questions(3))
        assert elsewhere.seen == []


@pytest.mark.parametrize("value", [None, "", "  ", "ключ", "a\nb"])
def test_a_variable_without_a_key_is_one_clear_error(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(ModelError, match="MY_KEY") as caught:
        EndpointChat("m", base_url="http://localhost/v1", api_key_env="MY_KEY")
    assert caught.value.cure
    assert not value or not value.strip() or value not in str(caught.value)


def test_requests_go_through_the_proxy_of_the_environment_unless_no_proxy_names_the_host(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeEndpoint() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        collect(EndpointChat("m", base_url="http://models.invalid/v1"), questions(1))
        assert [seen.path for seen in proxy.seen] == ["http://models.invalid/v1/chat/completions"]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        collect(chat(endpoint), questions(1))
        assert len(proxy.seen) == 1
    assert endpoint.seen[0].path == "/v1/chat/completions"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", *new_key, *subject, "-days", "2", "-out", "certificate.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return folder / "certificate.pem", context


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_certificates_are_checked_against_the_bundle_of_the_environment(
    variable: str, certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, context = certificate
    with FakeEndpoint(echo, certificate=context) as endpoint:
        with pytest.raises(ModelError, match="certificate is not trusted"):
            collect(chat(endpoint), questions(1))
        monkeypatch.setenv(variable, str(bundle))
        assert collect(chat(endpoint), questions(1))[0].text == "echo of question 0"


def test_a_missing_bundle_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/bundle.pem")
    with pytest.raises(ModelError, match="bundle"):
        collect(EndpointChat("m", base_url="https://localhost/v1"), questions(1))


def test_an_endpoint_that_is_silent_is_said_to_be(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    collect(chat(endpoint, say=said.append), questions(20))
    assert not said
    monkeypatch.setattr(endpoints, "SILENT_SECONDS", 0.05)
    endpoint.plan = lambda number, seen: answer(until=lambda: len(said) >= 3)
    began = monotonic()
    collect(chat(endpoint, say=said.append, timeout=90), questions(3))
    assert 0.05 * 2 ** (len(said) - 1) <= monotonic() - began, "each time that the silence has doubled"
    assert said[0].startswith(f"No answer from 127.0.0.1:{endpoint.port} for ")
    assert said[0].endswith("requests waiting: 3 (each try for up to 90 s).")
