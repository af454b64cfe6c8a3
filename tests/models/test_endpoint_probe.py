"""What ``understudy models check`` finds out."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import pytest
from endpoint_fixtures import chat, clean_environment_fixture, endpoint_fixture  # noqa: F401
from server import FakeEndpoint, Reply, answer, error, models
from test_cached import FakeChat

from understudy.models.endpoint import EndpointChat, ProbeReport, probe


def good(number: int, seen: Any) -> Reply:
    if seen.method == "GET":
        return replace(models("small", "large"), headers={"Content-Type": "text/plain"})
    if "from 1 to 20" in seen.prompt:
        return answer("1 2 3 4 5 6 ")
    if seen.body["max_tokens"] == 8:
        return answer("1 2 3 4", finish_reason="length", usage=(9, 8))
    return answer("Hello.")


def test_a_good_endpoint_passes_everything(endpoint: FakeEndpoint) -> None:
    endpoint.plan = good
    model = chat(endpoint)
    report = probe(model)
    assert report.seconds is not None
    found = replace(report, seconds=None)
    passed = {"honours_max_tokens": True, "honours_stop": True, "repeatable": True, "takes_system_message": True}
    assert found == ProbeReport(
        model.model_id, reachable=True, answers=True, listed=True, reports_usage=True, reasons=False, **passed
    )


def test_a_poor_endpoint_is_found_out(endpoint: FakeEndpoint) -> None:
    def poor(number: int, seen: Any) -> Reply:
        if seen.method == "GET":
            return models("another")
        if "temperature" in seen.body:
            return error(400, "Unsupported value: temperature", param="temperature")
        if seen.body["messages"][0]["role"] == "system":
            return error(400, "no system messages")
        return answer(f"<think>Hm.</think>{number} and 7 and many words more than were asked for here", usage=None)

    endpoint.plan = poor
    model = chat(endpoint)
    found = replace(probe(model), seconds=None)
    failed = {"honours_max_tokens": False, "honours_stop": False, "repeatable": False, "takes_system_message": False}
    more: dict[str, Any] = {**failed, "listed": False, "reports_usage": False, "reasons": True}
    assert found == ProbeReport(model.model_id, reachable=True, answers=True, left_out=("temperature",), **more)


@pytest.mark.parametrize(("status", "why"), [(401, "key"), (500, "HTTP 500")])
def test_an_endpoint_that_refuses_or_fails_is_reachable_and_says_why(
    endpoint: FakeEndpoint, status: int, why: str
) -> None:
    endpoint.plan = lambda number, seen: error(status)
    report = probe(chat(endpoint, max_retries=0))
    assert (report.reachable, report.answers, report.listed) == (True, False, None)
    assert why in (report.problem or "")


def test_nobody_there_is_reported_not_raised() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    report = probe(EndpointChat("m", base_url=f"http://127.0.0.1:{port}/v1", backoff_seconds=0.0))
    assert (report.reachable, report.answers) == (False, False)
    assert "does not answer" in (report.problem or "")


def test_any_chat_model_can_be_probed() -> None:
    report = probe(FakeChat())
    assert report.answers
    assert report.repeatable
    assert report.listed is None
    assert report.reasons is None
