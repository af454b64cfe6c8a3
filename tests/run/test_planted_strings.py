"""Planted private strings: they reach no endpoint, no terminal, no log, no error, and nothing under ``release/``."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import warnings
import zipfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from batch_server import Batches
from clinic import COLUMNS, LABELS, TERMS, flags, prompt_file, rows, settings, write_csv
from evolution_fixtures import WordEmbedder, evolving
from run_fixtures import Command, Said, release, runs_charged
from sample_releases import SAMPLES
from secret_fixtures import protecting, secret_rows
from server import FakeEndpoint, answer, error

import understudy as us
from understudy.base.errors import UnderstudyWarning
from understudy.base.lazy import quiet_libraries
from understudy.cli.options import given
from understudy.corpus.corpus import RowCheck
from understudy.evaluate import evaluate
from understudy.ledger import Ledger
from understudy.methods.registry import load_release
from understudy.models import batches
from understudy.privacy.guarantee import Budget
from understudy.report import write_reports
from understudy.run import door as measuring
from understudy.run import pipeline as running
from understudy.run.engine import Call
from understudy.run.outputs import OutputFolder
from understudy.run.pipeline import run
from understudy.run.settings import run_config
from understudy.text.prompts.template import load_template
from understudy.text.records import SyntheticRecord
from understudy.text.vocabulary.words import TermMatcher, split_words
from understudy.text.writing import public_name

# Begins every planted string, and nothing else: long enough not to be met in compressed bytes by chance.
PLANT = "zqxvkjw"
SKIP = {"max_bad_rows": 1}
# Where the one bad row of an error test is.
ROW = 137


def planted_rows(count: int = 60) -> list[dict[str, str]]:
    """Notes in which every cell holds something private."""
    return [
        {
            "note": f"{row['note']} {PLANT}name{number} \u2014 {PLANT}\u00e9t\u00e9{number}, {PLANT}@x.org",
            "department": row["department"],
            "clinician": f"{PLANT}owner{number % 9}",
            "secret": f"{PLANT}secret{number}",
        }
        for number, row in enumerate(rows(count))
    ]


def plant(folder: Path) -> None:
    columns = ("note", "department", "clinician", "secret")
    table = [*planted_rows(), {**planted_rows(1)[0], "department": f"{PLANT}label"}]
    write_csv(folder / "notes.csv", table, columns)


def planted_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    plant(folder)
    return settings(folder, owner="clinician", **SKIP, **changes)


def assert_clean(data: bytes | str, where: str) -> None:
    text = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    assert PLANT.encode() not in text.lower(), f"a planted string is in {where}"


def assert_clean_folder(folder: Path) -> int:
    """Every byte of every file, also as unzipped and as decoded from Parquet. Returns how many files there are."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        assert_clean(str(path.relative_to(folder)), "a file's name")
        assert_clean(path.read_bytes(), path.name)
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    assert_clean(archive.read(name), f"{path.name}:{name}")
                    if name.endswith(".parquet"):
                        with archive.open(name) as member:
                            assert_clean(str(pq.read_table(member).to_pylist()), f"{path.name}:{name}")
        if path.suffix == ".parquet":
            assert_clean(str(pq.read_table(path).to_pylist()), path.name)
            assert_clean(str(pq.read_metadata(path).metadata), path.name)
    return len(files)


@pytest.fixture
def nothing_leaves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Callable[..., None]:
    """Asserts that no planted string is in requests to an endpoint, in what was said or logged, or in results."""
    caplog.set_level(logging.DEBUG)

    def assert_nothing(*said: Said, seen: Sequence[Any] = (), files: int = 7) -> None:
        for request in seen:
            sent = json.dumps([request.method, request.path, dict(request.headers), request.body], ensure_ascii=False)
            assert_clean(sent, "a request")
        for each in said:
            assert_clean(each.out + each.err, "what was said")
        assert_clean(caplog.text, "the log")
        assert assert_clean_folder(tmp_path / "out" / "release") == files

    return assert_nothing


@pytest.mark.parametrize("method", [{}, {"noise": "laplace", "delta": "0"}], ids=["gaussian", "laplace"])
def test_nothing_planted_leaves_a_run_without_a_language_model(
    tmp_path: Path, understudy: Command, nothing_leaves: Callable[..., None], method: dict[str, Any]
) -> None:
    said = understudy("run", *flags(planted_settings(tmp_path, **method)), code=0)
    shown = understudy("show", str(tmp_path / "out" / "release" / "dp-kps.release"), "--json")
    nothing_leaves(said, shown)
    if os.name == "posix":
        private = tmp_path / "out" / "private"
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in private.iterdir())


def test_nothing_planted_reaches_an_endpoint_or_its_results(
    tmp_path: Path, understudy: Command, nothing_leaves: Callable[..., None]
) -> None:
    with FakeEndpoint(lambda number, seen: answer(f"A note on {seen.prompt}")) as endpoint:
        changes = {"llm": "openai:test", "base_url": endpoint.base_url, "samples": 2, "length": 4}
        prompt = prompt_file(tmp_path, repair=1, label_in_prompt=True)
        said = understudy("run", *flags(planted_settings(tmp_path, **changes, prompt=prompt)), code=0)
        seen = endpoint.seen
    assert len(seen) > 16
    nothing_leaves(said, seen=seen)
    template = load_template("document")
    public = " ".join([*TERMS, "cardiology dermatology", template.model_dump_json(), "document", "a text", "say ok"])
    assert words_of(seen) <= set(split_words(public.replace("\\n", " "))), "a prompt holds public words only"


def words_of(seen: Sequence[Any]) -> set[str]:
    """Of all first prompts: what answered ones ask to repair holds the model's own words."""
    messages = [
        message["content"] for each in seen if len(each.body["messages"]) < 5 for message in each.body["messages"]
    ]
    return {word for content in messages for word in split_words(content) if not word.isdigit()}


@pytest.mark.parametrize("words", [("-v",), ("-v", "--log-json"), ("-q",)])
def test_nothing_planted_is_said_however_much_is(tmp_path: Path, understudy: Command, words: tuple[str, ...]) -> None:
    def refuse(number: int, seen: Any) -> Any:
        return error(500, f"Failed on {seen.prompt}") if number % 3 == 1 else answer(f"A note on {seen.prompt}")

    with FakeEndpoint(refuse) as endpoint:
        changes = {"llm": "openai:test", "base_url": endpoint.base_url}
        said = understudy("run", *words, *flags(planted_settings(tmp_path, **changes)))
    assert said.code == 0, said.err
    assert_clean(said.out + said.err, "what was said")
    assert ("Try 1 of a request failed: the endpoint answered HTTP 500" in said.err) is ("-v" in words)
    plain = {name: value for name, value in planted_settings(tmp_path).items() if name != "max_bad_rows"}
    plain |= {"output": str(tmp_path / "bad"), "llm": "none", "dataset": "other"}
    said = understudy("run", *words, *flags(plain))
    assert said.code != 0
    assert_clean(said.out + said.err, "what was said")


def test_nothing_planted_is_in_a_batch(tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "POLL_SECONDS", 0.001)
    plan = Batches()
    with FakeEndpoint(plan) as endpoint:
        changes = {"llm": "openai:test", "base_url": endpoint.base_url, "llm_batch": True}
        said = understudy(
            "run",
            "-v",
            *flags(planted_settings(tmp_path, **changes, prompt=prompt_file(tmp_path, label_in_prompt=True))),
        )
    assert said.code == 0, said.err
    assert plan.batches
    assert_clean(said.out + said.err, "what was said")
    for name, content in plan.files.items():
        assert_clean(content, name)
    for seen in endpoint.seen:
        assert_clean(f"{seen.path} {dict(seen.headers)} {seen.body}", "a request")


UNITS: dict[str, dict[str, Any]] = {
    "record": {},
    "owner": {"owner": "clinician"},
    "secret": {
        **{"epsilon": None, "delta": None, "secret_prior": "1e-4", "secret_posterior": "1e-3"},
        **{"secrets": "secret", "max_records_per_secret": 2},
    },
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.usefixtures("embedder")
def test_nothing_planted_leaves_a_private_evolution(
    tmp_path: Path, understudy: Command, nothing_leaves: Callable[..., None], unit: str
) -> None:
    plant(tmp_path)
    own = {"private_keywords": True, "vocabulary_is_public": True, "top_terms": 5, "label_sizes": "noisy"}
    with FakeEndpoint(lambda number, seen: answer(f"A note of {TERMS[number % 16]} and {number}.")) as endpoint:
        changes = {"llm": "openai:test", "base_url": endpoint.base_url, **SKIP, **UNITS[unit]}
        values = evolving(tmp_path, **own, **changes, vocabulary=str(tmp_path / "terms.txt"))
        said = understudy("run", *flags({**values, "records_per_label": 6}), code=0)
        release = str(tmp_path / "out" / "release" / "aug-pe.release")
        more = ("--records-per-label", "6", "--harvest", "variations", "--output", str(tmp_path / "more"))
        spoken = ("--llm", "openai:test", "--base-url", endpoint.base_url)
        again = [understudy("generate", release, *spoken, *more), understudy("show", release, "--json")]
        seen = endpoint.seen
    assert [each.code for each in again] == [0, 0]
    assert len(seen) > 24 + 16 + 12
    nothing_leaves(said, *again, seen=seen)
    assert assert_clean_folder(tmp_path / "out") > 4  # the private folder too: vectors are gone, texts never there
    assert assert_clean_folder(tmp_path / "more" / "release") >= 3


@pytest.mark.usefixtures("embedder")
@pytest.mark.parametrize("method", ["dp-kps", "guided-evolution"])
def test_nothing_planted_leaves_a_run_with_a_guide(
    tmp_path: Path, understudy: Command, nothing_leaves: Callable[..., None], method: str
) -> None:
    plant(tmp_path)
    with FakeEndpoint(lambda number, seen: answer(f"A note of {TERMS[number % 16]} and {number}.")) as endpoint:
        changes = {"llm": "openai:test", "base_url": endpoint.base_url, **SKIP}
        if method == "dp-kps":
            values = settings(tmp_path, **changes, guide=True, guide_candidates=3, owner="clinician")
        else:
            values = evolving(tmp_path, method=method, **changes)
        said = understudy("run", *flags(values), code=0)
        seen = endpoint.seen
    assert len(seen) >= 24
    nothing_leaves(said, seen=seen)
    assert_clean_folder(tmp_path / "out")
    assert ("The guide chose 8 of 24 texts" in said.err) == (method == "dp-kps")


def test_an_embedder_that_fails_on_a_private_text_does_not_quote_it(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(WordEmbedder):
        def embed(self, texts: Sequence[str]) -> Any:
            if any(PLANT in text for text in texts):
                raise ValueError(f"cannot embed {texts}")
            return super().embed(texts)

    plant(tmp_path)
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: Broken())
    said = understudy("run", *flags(settings(tmp_path, guide=True, **SKIP)))
    assert said.code != 0
    assert_clean(said.out + said.err, "what was said")
    assert_clean_folder(tmp_path / "out" / "release")


def csv_with(bad: bytes) -> bytes:
    good = [f"{row['note']},{row['department']},{row['clinician']}".replace(", ", " ") for row in rows(ROW - 1)]
    return b"note,department,clinician\r\n" + "\r\n".join(good).encode() + b"\r\n" + bad + b"\r\n"


def jsonl_with(bad: bytes) -> bytes:
    return "\n".join(json.dumps(row) for row in rows(ROW - 1)).encode() + b"\n" + bad + b"\n"


BAD_ROWS: dict[str, tuple[str, bytes]] = {
    "an empty text": ("csv", b",cardiology,zqxvkjwowner"),
    "bad encoding": ("csv", b"zqxvkjw \xff\xfe name,cardiology,dr-1"),
    "a long cell": ("csv", b"zqxvkjw" * 150_000 + b",cardiology,dr-1"),
    "no label": ("csv", b"zqxvkjw text,,dr-1"),
    "an undeclared label": ("csv", b"a text,zqxvkjwlabel,dr-1"),
    "no owner": ("csv", b"zqxvkjw text,cardiology,"),
    "too few fields": ("csv", b"zqxvkjw text"),
    "too many fields": ("csv", b"zqxvkjw text,cardiology,dr-1,zqxvkjw,zqxvkjw"),
    "an open quote": ("csv", b'"zqxvkjw text,cardiology,dr-1'),
    "a text that is no string": ("jsonl", b'{"note": {"zqxvkjw": 1}, "department": "cardiology", "clinician": "x"}'),
    "invalid JSON": ("jsonl", b'{"note": "zqxvkjw", "department": "cardiology", "clin'),
    "no object": ("jsonl", b'["zqxvkjw", "cardiology"]'),
    "a lone surrogate": ("jsonl", b'{"note": "zqxvkjw \\ud800", "department": "cardiology", "clinician": "x"}'),
    "an owner that is no string": ("jsonl", b'{"note": "a", "department": "cardiology", "clinician": ["zqxvkjw"]}'),
}


@pytest.mark.parametrize("kind", BAD_ROWS)
def test_no_bad_row_is_quoted_or_numbered(tmp_path: Path, understudy: Command, kind: str) -> None:
    ending, bad = BAD_ROWS[kind]
    path = tmp_path / f"notes.{ending}"
    path.write_bytes(csv_with(bad) if ending == "csv" else jsonl_with(bad))
    said = understudy("run", *flags(settings(tmp_path, data=str(path), owner="clinician")), code=3)
    assert said.err.startswith(("Error: ", "Protecting"))
    assert_clean(said.out + said.err, "the error")
    said_here = said.err.replace(str(tmp_path), "")  # whose own numbers are not rows
    assert not re.search(rf"\b{ROW}\b|\b{ROW + 1}\b", said_here), "a row number"
    assert not list((tmp_path / "out" / "release").iterdir())


def raising(text: str, kind: type[BaseException]) -> Callable[..., Any]:
    def broken(*arguments: object, **named: object) -> Any:
        raise kind(f"broken by {text}: {arguments}")

    return broken


@pytest.mark.parametrize(
    ("owner", "name", "kind"),
    [(RowCheck, "__call__", ValueError), (TermMatcher, "first_distinct", BaseException)],
    ids=["reading", "matching, in a library that panics"],
)
def test_an_internal_error_shows_its_place_and_not_its_message(
    tmp_path: Path, understudy: Command, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, kind: type
) -> None:
    monkeypatch.setattr(owner, name, raising(PLANT, kind))
    said = understudy("run", *flags(planted_settings(tmp_path)), code=70)
    assert f"Internal error: {kind.__name__} in test_planted_strings.py, line " in said.err
    assert "Traceback" not in said.err
    assert_clean(said.out + said.err, "the error")


def test_the_planted_strings_test_notices_a_leak(tmp_path: Path) -> None:
    (tmp_path / "a.release").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "a.release", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", f"a {PLANT}name3 b" * 9)
    assert PLANT.encode() not in (tmp_path / "a.release").read_bytes()
    with pytest.raises(AssertionError, match="a planted string is in"):
        assert_clean_folder(tmp_path)


# -- secrets -----------------------------------------------------------------------------------------------------------


def planted(folder: Path, **changes: Any) -> dict[str, Any]:
    """Every cell of the table holds something private; the secrets come from a column and a file."""
    plant(folder)
    (folder / "secrets.txt").write_text(f"{PLANT}name7\n{PLANT}name8\n", "utf-8")
    own = {"secrets": "secret", "secrets_file": str(folder / "secrets.txt"), "secret_detectors": "phone"}
    return protecting(folder, **{**own, **SKIP, "max_records_per_secret": 2, **changes})


@pytest.mark.usefixtures("embedder")
def test_nothing_planted_leaves_a_run_that_protects_secrets(
    tmp_path: Path, understudy: Command, nothing_leaves: Callable[..., None]
) -> None:
    with FakeEndpoint(lambda number, seen: answer(f"Seen: {TERMS[number % 16]}, {TERMS[number % 7]}.")) as endpoint:
        values = planted(tmp_path, llm="openai:test", base_url=endpoint.base_url, insecure_no_noise=True)
        said = understudy("run", *flags(values), code=0)
        seen = endpoint.seen
    assert len(seen) > 24
    nothing_leaves(said, understudy("show", str(tmp_path / "out" / "release" / "sec-pe.release"), "--json"), seen=seen)
    public = json.dumps([load_template("document").model_dump(mode="json"), TERMS, LABELS], ensure_ascii=False)
    assert words_of(seen) <= set(split_words(f"{public} document seen say ok".replace("\\n", " ")))


@pytest.mark.usefixtures("embedder", "varied_chat")
def test_nothing_planted_is_in_an_incidence_file_its_release_or_the_refusal_of_another_tables(
    tmp_path: Path, understudy: Command, nothing_leaves: Callable[..., None]
) -> None:
    values = planted(tmp_path)
    names = ("data", "text", "label", "labels", "secrets", "secrets_file", "secret_detectors", "max_bad_rows")
    given = {name: values[name] for name in names} | {"output": str(tmp_path / "shown" / "incidence.parquet")}
    said = understudy("secrets", "incidence", *flags(given), code=0)
    write_csv(tmp_path / "other.csv", secret_rows(8), COLUMNS)
    another = {"data": str(tmp_path / "other.csv"), "text": "note", "secret_detectors": "email"}
    assert understudy("secrets", "incidence", *flags({**another, "output": str(tmp_path / "i.parquet")})).code == 0
    refused = understudy(
        "run", *flags({**values, "incidence": "public", "incidence_file": str(tmp_path / "i.parquet")}), code=3
    )
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    ran = understudy("run", *flags({**values, "incidence": "public", "incidence_file": given["output"]}), code=0)
    assert assert_clean_folder(tmp_path / "shown") == 1
    nothing_leaves(said, refused, ran)


# -- what is shareable names files and models, not where they lie; flags win over the configuration -------------------


def test_a_release_names_the_vocabulary_file_and_not_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "home-of-somebody"
    folder.mkdir()
    release(settings(folder, output=str(tmp_path / "out"), records_per_label=None))
    loaded = load_release(tmp_path / "out" / "release" / "dp-kps.release")
    assert loaded.parameters["vocabulary"] == "terms.txt"
    assert "home-of-somebody" not in json.dumps([dict(loaded.parameters), loaded.statement.to_json()])
    assert len(us.generate(loaded, llm="none", records=4).records) == 4


@pytest.mark.parametrize(
    ("model_id", "shown"),
    [
        ("openai:m@https://inner.example:8000/v1", "openai:m"),
        ("builtin:smollm2@0123", "builtin:smollm2"),
        ("hf:/srv/models/tiny@0123", "hf:tiny"),
        ("hf:ORG/NAME@0123", "hf:ORG/NAME"),
    ],
)
def test_provenance_names_a_model_without_its_address_or_folder(model_id: str, shown: str) -> None:
    assert public_name(model_id) == shown


def test_a_flag_for_the_number_of_records_replaces_the_other_way_to_say_it(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("records_per_label: 5\n", "utf-8")
    assert given({"records": 3, "records_per_label": None}, str(config)) == {"records": 3}


# -- reports of every method, whatever its statement says of its public inputs -----------------------------------------


@pytest.mark.parametrize("method", SAMPLES)
def test_every_method_has_a_report(tmp_path: Path, method: str) -> None:
    release, folder = SAMPLES[method](), OutputFolder(tmp_path / "out")
    folder.make()
    folder.write_release(release)
    folder.write_records([SyntheticRecord("a text", label, {}) for label in (0, 1)], release.schema)
    text = write_reports(folder, embedder=None).shareable.read_text("utf-8")
    assert "<dt>model</dt><dd>fake</dd>" in text, "without a SHA-256"
    assert f"SHA-256 <code>{'1' * 64}</code>" in text


@pytest.mark.usefixtures("embedder", "varied_chat")
@pytest.mark.parametrize("make", [evolving, protecting])
def test_a_run_that_evolves_texts_has_a_report(tmp_path: Path, make: Any) -> None:
    values = make(tmp_path)
    running.run(run_config(values))
    text = write_reports(OutputFolder(Path(values["output"])), embedder=None).shareable.read_text("utf-8")
    assert f"made by {values['method']}" in text
    assert "8 synthetic texts" in text


# -- what a library says while private data pass through it stays unsaid ----------------------------------------------

WORDS = "it did not converge"


def complains() -> None:
    warnings.warn(WORDS, RuntimeWarning, stacklevel=1)
    logging.getLogger("some_library").warning(WORDS)


@pytest.mark.parametrize("quiet", [True, False])
def test_libraries_are_silent_and_understudy_is_not(caplog: pytest.LogCaptureFixture, quiet: bool) -> None:
    with warnings.catch_warnings(record=True) as shown, quiet_libraries() if quiet else nullcontext():
        warnings.simplefilter("always")
        complains()
        with quiet_libraries():  # which ends before the outer one
            complains()
        complains()
        warnings.warn("ours", UnderstudyWarning, stacklevel=1)
        logging.getLogger("understudy.models").warning("our line")
    expected = [] if quiet else [WORDS, WORDS]
    assert [str(each.message) for each in shown] == [*expected, "ours"]
    assert caplog.messages == [*expected, "our line"]


def test_a_warning_of_a_library_is_no_error_where_the_user_made_warnings_errors() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet_libraries():
            complains()
            with pytest.raises(UnderstudyWarning):
                warnings.warn("ours", UnderstudyWarning, stacklevel=1)
        with pytest.raises(RuntimeWarning):
            complains()


def test_no_warning_of_a_library_on_private_data_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    for module, name in ((measuring, "measure"), (evaluate, "measure"), (evaluate, "read_sample")):
        whole = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, whole=whole, **o: (complains(), whole(*a, **o))[1])
    run(run_config(settings(tmp_path)))
    ledger = tmp_path / "ledger.sqlite"
    with Ledger(ledger) as book:
        book.raise_cap("notes", cap=Budget(9, "1e-5"))
    options = {"embedder": "none", "metrics": "leakage", "charge_metrics": "0.5", "ledger": str(ledger)}
    us.evaluate(tmp_path / "notes.csv", tmp_path / "out", **options)
    assert WORDS not in {*caplog.messages, *(str(each.message) for each in recwarn)}


def test_a_worker_shows_no_warning_of_a_library() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        assert Call.of(lambda item: (complains(), item)[1])(7).get() == 7
    assert shown == []
