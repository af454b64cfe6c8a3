"""Planted private strings in a run that protects secrets: they leave by no way."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clinic import COLUMNS, LABELS, TERMS, flags, write_csv
from run_fixtures import Said, runs_charged
from secret_fixtures import protecting, secret_rows
from server import FakeEndpoint, answer
from test_planted_strings import PLANT, assert_clean, assert_clean_folder, plant

from understudy.text.prompts.template import load_template
from understudy.text.vocabulary.words import split_words

pytestmark = pytest.mark.usefixtures("embedder")


def planted(folder: Path, **changes: Any) -> dict[str, Any]:
    """Every cell of the table holds something private; the secrets come from a column and a file."""
    plant(folder)
    (folder / "secrets.txt").write_text(f"{PLANT}name7\n{PLANT}name8\n", "utf-8")
    own = {"secrets": "secret", "secrets_file": str(folder / "secrets.txt"), "secret_detectors": "phone"}
    return protecting(folder, **{**own, "max_bad_rows": 1, "max_records_per_secret": 2, **changes})


def test_nothing_planted_reaches_an_endpoint_a_log_or_the_results(
    tmp_path: Path, understudy: Callable[..., Said], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeEndpoint(lambda number, seen: answer(f"Seen: {TERMS[number % 16]}, {TERMS[number % 7]}.")) as endpoint:
        values = planted(tmp_path, llm="openai:test", base_url=endpoint.base_url, insecure_no_noise=True)
        said = understudy("run", *flags(values))
        assert said.code == 0, said.err
        seen = endpoint.seen
    assert len(seen) > 24
    for request in seen:
        sent = json.dumps([request.method, request.path, dict(request.headers), request.body], ensure_ascii=False)
        assert_clean(sent, "a request")
    assert_clean(said.out + said.err, "what was said")
    assert_clean(caplog.text, "the log")
    assert assert_clean_folder(tmp_path / "out" / "release") == 5
    said = understudy("show", str(tmp_path / "out" / "release" / "sec-pe.release"), "--json")
    assert_clean(said.out + said.err, "what was said")
    template = load_template("document")
    public = json.dumps([template.model_dump(mode="json"), TERMS, LABELS], ensure_ascii=False)
    allowed = set(split_words(f"{public} document seen say ok".replace("\\n", " ")))
    words = {word for each in seen for message in each.body["messages"] for word in split_words(message["content"])}
    assert {word for word in words if not word.isdigit()} <= allowed


@pytest.mark.usefixtures("varied_chat")
def test_nothing_planted_is_in_an_incidence_file_or_its_release(
    tmp_path: Path, understudy: Callable[..., Said]
) -> None:
    values = planted(tmp_path)
    names = ("data", "text", "label", "labels", "secrets", "secrets_file", "secret_detectors", "max_bad_rows")
    given = {name: values[name] for name in names} | {"output": str(tmp_path / "shown" / "incidence.parquet")}
    said = understudy("secrets", "incidence", *flags(given))
    assert said.code == 0, said.err
    assert_clean(said.out + said.err, "what was said")
    own = {"incidence": "public", "incidence_file": given["output"]}
    said = understudy("run", *flags({**values, **own}))
    assert said.code == 0, said.err
    assert_clean(said.out + said.err, "what was said")
    assert assert_clean_folder(tmp_path / "shown") == 1
    assert assert_clean_folder(tmp_path / "out" / "release") == 5


@pytest.mark.usefixtures("varied_chat")
def test_the_incidence_of_another_table_is_refused_without_a_word_of_it(
    tmp_path: Path, understudy: Callable[..., Said]
) -> None:
    values = planted(tmp_path)
    write_csv(tmp_path / "other.csv", secret_rows(8), COLUMNS)
    given = {"data": str(tmp_path / "other.csv"), "text": "note", "secret_detectors": "email"}
    assert understudy("secrets", "incidence", *flags({**given, "output": str(tmp_path / "i.parquet")})).code == 0
    said = understudy("run", *flags({**values, "incidence": "public", "incidence_file": str(tmp_path / "i.parquet")}))
    assert said.code == 3
    assert_clean(said.out + said.err, "the error")
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
