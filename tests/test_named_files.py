"""Every file of public words or settings that a user names is an ordinary file of bounded length."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.base import files
from understudy.base.errors import UnderstudyError
from understudy.base.files import UnreadableText, lines_of, read_whole
from understudy.base.parameters import Parameters
from understudy.base.yaml_text import load_yaml
from understudy.corpus import read_corpus
from understudy.corpus.secrets import Incidence, secret_finder
from understudy.methods.sec_pe.plan import read_per_secret_budgets
from understudy.methods.shared.decoding.structured import JSONSchema
from understudy.methods.shared.evolution.variation import _read as read_keywords
from understudy.run.settings import read_config
from understudy.schema.labels import declared_labels
from understudy.text.prompts.template import load_template
from understudy.text.vocabulary.terms import load_stop_words, load_vocabulary

READERS: dict[str, Callable[[Path], object]] = {
    "vocabulary.txt": load_vocabulary,
    "vocabulary.gz": load_vocabulary,
    "vocabulary.csv": load_vocabulary,
    "vocabulary.parquet": load_vocabulary,
    "stop.txt": load_stop_words,
    "labels.txt": lambda path: declared_labels(f"@{path}"),
    "labels.json": lambda path: declared_labels(f"@{path}"),
    "keywords.txt": read_keywords,
    "keywords.yaml": read_keywords,
    "template.yaml": lambda path: load_template("note", file=path),
    "config.yaml": read_config,
    "schema.json": JSONSchema,
    "secrets.txt": lambda path: secret_finder(read_corpus([{"note": "x"}], text="note"), file=path),
    "budgets.csv": lambda path: read_per_secret_budgets(str(path), 1),
    "incidence.parquet": Incidence.read,
}


@pytest.mark.skipif(os.name != "posix", reason="devices have paths")
@pytest.mark.parametrize("name", READERS)
def test_a_device_in_the_place_of_a_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    """Devices and pipes are told alike; this one, unlike others, ends a reader that does not tell it."""
    (tmp_path / name).symlink_to("/dev/null")
    with pytest.raises(UnderstudyError) as caught:
        READERS[name](tmp_path / name)
    if name not in ("labels.txt", "labels.json", "incidence.parquet"):  # these give no reason
        assert "pipe or device" in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="pipes have paths")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableText, match="pipe or device"):
        read_whole(tmp_path / "pipe")
    with pytest.raises(UnderstudyError, match="not an incidence file"):
        Incidence.read(tmp_path / "pipe")


def test_a_file_that_is_too_long_is_an_error_and_one_that_is_just_not_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"x" * (1 << 20))
    assert len(read_whole(tmp_path / "t.txt", most=1 << 20)) == 1 << 20
    with (tmp_path / "t.txt").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UnreadableText, match="longer than 1 MiB"):
        read_whole(tmp_path / "t.txt", most=1 << 20)
    with (tmp_path / "c.yaml").open("wb") as file:
        file.truncate(files.MOST_SETTINGS_BYTES + 1)
    with pytest.raises(UnderstudyError, match="longer than 16 MiB"):
        read_config(tmp_path / "c.yaml")


# -- YAML files are read as their writers mean them -------------------------------------------------------------------


def test_yes_and_no_are_words_and_true_and_false_are_not() -> None:
    assert load_yaml("labels: [yes, No, on, OFF]") == {"labels": ["yes", "No", "on", "OFF"]}
    assert load_yaml("labels: [true, False]\nno: 1") == {"labels": [True, False], "no": 1}
    assert load_yaml("a: 2024-03-01\nb: 0.5\nc: ~\nd: null")["c"] is None


@pytest.mark.parametrize(("said", "meant"), [("yes", True), ("no", False), ("on", True), ("off", False)])
def test_a_parameter_that_is_true_or_false_takes_yes_and_no(said: str, meant: bool) -> None:
    class Switch(Parameters):
        fresh: bool = not meant

    assert Switch(**load_yaml(f"fresh: {said}")).fresh is meant


@pytest.mark.parametrize("text", ["a: 1\na: 2", "b:\n  a: [1]\n  a: [2]", "[{a: 1, 'a': 2}]"])
def test_a_name_that_stands_twice_is_refused(text: str) -> None:
    with pytest.raises(UnreadableText, match="occurs again at line"):
        load_yaml(text)


def test_what_is_merged_may_be_overridden() -> None:
    assert load_yaml("x: &x {a: 1}\ny:\n  <<: *x\n  a: 2\nz: {a: 3}")["y"] == {"a": 2}


@pytest.mark.parametrize(
    "text", ["a: *secret", "secret: [", "!secret a", "\tsecret: 1", "secret: b: c", "a: \x00secret"]
)
def test_what_is_no_yaml_is_refused_without_a_word_of_it(text: str) -> None:
    with pytest.raises(UnreadableText) as caught:
        load_yaml(text)
    assert "secret" not in str(caught.value)


# -- files with an entry per line: lines end at LF or CRLF and nowhere else, whoever reads them -----------------------

LINE_READERS: dict[str, Callable[[Path], object]] = {
    "secrets": lambda path: secret_finder(read_corpus([{"note": "x"}], text="note"), file=path).numbered,
    "labels": lambda path: declared_labels(f"@{path}"),
    "vocabulary": lambda path: load_vocabulary(path, stop_words="none").terms,
}


@pytest.mark.parametrize("reader", LINE_READERS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_entry_with_other_line_breaks_in_it_is_one_entry(tmp_path: Path, reader: str, end: str) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(end.join(["\ufeffann", "", "bob\u2028jones", "carl\x0cx\x85y", ""]).encode())
    assert [str(entry).split() for entry in LINE_READERS[reader](path)] == [
        ["ann"],
        ["bob", "jones"],
        ["carl", "x", "y"],
    ]


@pytest.mark.parametrize("reader", LINE_READERS)
@pytest.mark.parametrize("content", [b"ann\rbob\r", b"ann\nbob\rcarl\n", b"ann\r\r\nbob\n", b"ann\nbob\r"])
def test_a_lone_carriage_return_is_an_error_and_no_line_of_a_file(tmp_path: Path, reader: str, content: bytes) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(content)
    with pytest.raises(UnderstudyError, match="cannot be read") as caught:
        LINE_READERS[reader](path)
    assert "LF or CRLF" in str(caught.value)
    assert "bob" not in str(caught.value)


def test_stop_words_are_read_by_the_same_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(b"the\r\nof\n")
    assert load_stop_words(path) == {"the", "of"}


def test_an_unreadable_text_says_why_and_quotes_nothing() -> None:
    for data in (b"Zebra\xff", b"Zebra\rquux"):
        with pytest.raises(UnreadableText) as caught:
            lines_of(data)
        assert "Zebra" not in repr(caught.value)
        assert caught.value.__cause__ is None
    assert lines_of(b"") == [""]
    assert lines_of(b"a\n\nb") == ["a", "", "b"]
