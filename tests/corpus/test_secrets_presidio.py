"""Detectors of the extra ``pii``."""

from __future__ import annotations

import logging

import pytest

from understudy.base.errors import ConfigError
from understudy.corpus.secrets import SecretFinder, detectors, make_detectors


@pytest.fixture
def presidio() -> None:
    pytest.importorskip("presidio_analyzer")


def test_without_the_extra_a_presidio_detector_is_one_clear_error(monkeypatch) -> None:
    def import_module(name: str):
        raise ImportError(name)

    monkeypatch.setattr(detectors, "import_module", import_module)
    detectors._recognizers.cache_clear()
    with pytest.raises(ConfigError, match=r"understudy\[pii\]"):
        make_detectors(["presidio:IT_FISCAL_CODE"])


@pytest.mark.parametrize(
    ("entity", "text", "secret"),
    [
        ("IT_FISCAL_CODE", "codice MRTMTT91D08F205J.", "mrtmtt91d08f205j"),
        ("PHONE_NUMBER", "call 0207 946 0123", "0207 946 0123"),
        ("ES_NIF", "NIF 55555555K,", "55555555k"),
    ],
)
def test_presidio_finds_what_has_a_form(presidio, entity: str, text: str, secret: str) -> None:
    assert SecretFinder(detectors=make_detectors([f"presidio:{entity}"])).find(text) == {secret}


def test_a_listed_string_that_presidio_knows_is_one_secret_with_what_it_finds(presidio) -> None:
    finder = SecretFinder(["MRTMTT91D08F205J"], detectors=make_detectors(["presidio:IT_FISCAL_CODE"]))
    assert finder.find("mrtmtt91d08f205j") == set(finder.numbered)


@pytest.mark.parametrize("entity", ["PERSON", "EMAIL_ADDRESS", "NOTHING"])
def test_what_needs_a_model_or_the_internet_is_refused(presidio, entity: str) -> None:
    with pytest.raises(ConfigError, match="Presidio"):
        make_detectors([f"presidio:{entity}"])


def test_presidio_logs_no_string_that_fails_a_check(presidio, caplog) -> None:
    [detector] = make_detectors(["presidio:IBAN_CODE"])
    with caplog.at_level(logging.DEBUG):
        list(detector.find("GB82 WEST 1234 5698 7654 33 PLANTED"))
    assert caplog.text == ""
