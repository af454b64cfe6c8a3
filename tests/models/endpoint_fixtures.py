"""What the endpoint tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from server import FakeEndpoint, Plan, answer

from understudy.models.endpoint import EndpointChat
from understudy.models.types import ChatRequest, Message

_VARIABLES = (
    *("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"),
    *("OPENAI_CUSTOM_HEADERS", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)


@pytest.fixture(autouse=True, name="clean_environment")
def clean_environment_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(name="endpoint")
def endpoint_fixture() -> Iterator[FakeEndpoint]:
    with FakeEndpoint() as endpoint:
        yield endpoint


def chat(endpoint: FakeEndpoint, **options: Any) -> EndpointChat:
    """A client that does not wait between its tries."""
    return EndpointChat("small", **{"base_url": endpoint.base_url, "backoff_seconds": 0.0, **options})


def ask(prompt: str = "Hello", **options: Any) -> ChatRequest:
    return ChatRequest((Message("user", prompt),), **options)


def questions(count: int) -> list[ChatRequest]:
    return [ask(f"question {number}") for number in range(count)]


def echo(number: int, seen: Any) -> Any:
    """Answer with the prompt, so that a test sees whose answer it is."""
    return answer(f"echo of {seen.prompt}")


def by_prompt(*faults: Any) -> Plan:
    """Each prompt meets all ``faults`` in their order, then an echo."""
    tries: dict[str, int] = {}

    def plan(number: int, seen: Any) -> Any:
        turn = tries.get(seen.prompt, 0)
        tries[seen.prompt] = turn + 1
        return faults[turn] if turn < len(faults) else echo(number, seen)

    return plan
