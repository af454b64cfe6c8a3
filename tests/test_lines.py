"""Files with an entry per line: lines end at LF or CRLF and nowhere else, whoever reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.base.errors import UnderstudyError
from understudy.base.files import UnreadableText, lines_of
from understudy.base.labels import declared_labels
from understudy.corpus import read_corpus
from understudy.corpus.secrets import secret_finder
from understudy.text.vocabulary.terms import load_stop_words, load_vocabulary

READERS: dict[str, Callable[[Path], object]] = {
    "secrets": lambda path: secret_finder(read_corpus([{"note": "x"}], text="note"), file=path).numbered,
    "labels": lambda path: declared_labels(f"@{path}"),
    "vocabulary": lambda path: load_vocabulary(path, stop_words="none").terms,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_entry_with_other_line_breaks_in_it_is_one_entry(tmp_path: Path, reader: str, end: str) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(end.join(["\ufeffann", "", "bob\u2028jones", "carl\x0cx\x85y", ""]).encode())
    assert [str(entry).split() for entry in READERS[reader](path)] == [["ann"], ["bob", "jones"], ["carl", "x", "y"]]


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("content", [b"ann\rbob\r", b"ann\nbob\rcarl\n", b"ann\r\r\nbob\n", b"ann\nbob\r"])
def test_a_carriage_return_alone_is_an_error_and_never_one_entry_of_a_whole_file(
    tmp_path: Path, reader: str, content: bytes
) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(content)
    with pytest.raises(UnderstudyError, match="cannot be read") as caught:
        READERS[reader](path)
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
