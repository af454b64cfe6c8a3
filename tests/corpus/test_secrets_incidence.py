"""Which record holds which secret, the cap, and the incidence file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import Corpus, read_corpus
from understudy.corpus.secrets import (
    Incidence,
    check_incidence,
    check_records_per_secret,
    incidence,
    records_per_secret,
    secret_finder,
    secrets_of_records,
)

PLANTED = "Xanthippe Quillfeather"


def table(*texts: str, secrets: list[list[str]] | None = None) -> Corpus:
    rows = [{"note": text} for text in texts]
    if secrets is None:
        return read_corpus(rows, text="note")
    return read_corpus(
        [{**row, "who": who} for row, who in zip(rows, secrets, strict=True)], text="note", secrets="who"
    )


def pairs(made: Incidence) -> list[tuple[int, int]]:
    return list(zip(made.records.tolist(), made.secrets.tolist(), strict=True))


def test_a_string_of_the_column_counts_in_every_text_that_holds_it() -> None:
    corpus = table("Ann came", "no one", "ANN left", "Annual", secrets=[["Ann"], [], [], []])
    assert list(secrets_of_records(corpus, secret_finder(corpus))) == [{"ann"}, set(), {"ann"}, set()]


def test_a_row_holds_what_it_lists_even_where_its_text_spells_it_otherwise() -> None:
    corpus = table("Annas Brief", "x", secrets=[["Anna", "-"], []])
    assert list(secrets_of_records(corpus, secret_finder(corpus))) == [{"anna"}, set()]


def test_column_file_and_detectors_combine(write) -> None:
    file = write("secrets.txt", "\ufeffBob\r\n\r\n  Eve  \r\n")
    corpus = table("Ann, bob@example.org", "EVE", secrets=[["Ann"], []])
    finder = secret_finder(corpus, file=file, detectors=["email"])
    assert list(secrets_of_records(corpus, finder)) == [{"ann", "bob", "bob@example.org"}, {"eve"}]


def test_a_json_record_is_searched_value_by_value() -> None:
    rows = [{"a": 'line\nAnn said "hi"\\Bob', "b": {"Eve": [7, None, True]}, "c": 4111111111111111}]
    corpus = read_corpus(rows, record_columns=["a", "b", "c"])
    for secret in ("Ann", "Bob", "Eve", "7", "hi"):
        finder = secret_finder(corpus, file=None, detectors=["credit_card"])
        finder = type(finder)([secret, "a"], detectors=())
        assert list(secrets_of_records(corpus, finder)) == [{secret.casefold()}]
    assert records_per_secret(corpus, secret_finder(corpus, detectors=["credit_card"])) == {"4111111111111111": 1}


@pytest.mark.parametrize("content", [None, b"\xff\xfePlanted"])
def test_a_file_of_secrets_that_cannot_be_read_is_one_clear_error(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secrets.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CorpusError) as caught:
        secret_finder(table("x"), file=file)
    assert "Planted" not in str(caught.value)


def test_the_cap_holds_at_its_value_and_is_broken_above_it() -> None:
    corpus = table(f"{PLANTED} came", f"and {PLANTED} {PLANTED}", "x", secrets=[[PLANTED], [], []])
    finder = secret_finder(corpus)
    check_records_per_secret(corpus, finder, 2)
    with pytest.raises(CorpusError) as caught:
        check_records_per_secret(corpus, finder, 1)
    message = str(caught.value).casefold()
    assert not any(private in message for private in ("xanthippe", "quillfeather", "1", "2", "3"))


def test_the_cap_holds_for_a_table_without_a_secret_or_without_a_row() -> None:
    for corpus in (table("x"), table()):
        check_records_per_secret(corpus, secret_finder(corpus, detectors=["email"]), 1)


def test_strings_of_the_file_have_the_first_numbers_in_its_order(write) -> None:
    file = write("secrets.txt", "zoe\nnobody\nANN\nann\n")
    corpus = table("zoe", "bob ann", "bob", secrets=[[], ["bob"], []])
    made = incidence(corpus, secret_finder(corpus, file=file))
    assert (made.n_records, made.n_secrets) == (3, 4)
    assert pairs(made) == [(0, 0), (1, 2), (1, 3), (2, 3)]


def test_numbers_of_other_secrets_say_nothing_about_their_values() -> None:
    """The same incidence with other strings in the places of the first is the same file."""
    holders = [["p", "q"], ["q"], ["r", "s"], ["p"]]
    files = set()
    for names in ("pqrs", "srqp", "qspr"):
        rename = dict(zip("pqrs", names, strict=True))
        rows = [[rename[one] for one in row] for row in holders]
        corpus = table(*map(" ".join, rows), secrets=rows)
        files.add(incidence(corpus, secret_finder(corpus)).sha256)
    assert len(files) == 1


def test_the_matrix_has_a_row_a_secret_and_a_column_a_record() -> None:
    made = Incidence(3, 2, np.array([0, 0, 2]), np.array([0, 1, 1]))
    assert made.to_csr().toarray().tolist() == [[1, 0, 0], [1, 0, 1]]
    assert Incidence(0, 0, np.array([]), np.array([])).to_csr().shape == (0, 0)


@given(st.lists(st.sets(st.integers(0, 4)), max_size=8))
def test_an_incidence_comes_back_from_its_file(tmp_path_factory, rows: list[set[int]]) -> None:
    flat = [(record, secret) for record, row in enumerate(rows) for secret in sorted(row)]
    records, secrets = np.array(flat, dtype=np.int64).reshape(-1, 2).T
    made = Incidence(len(rows), 5, records, secrets)
    file = tmp_path_factory.mktemp("incidence") / "incidence.parquet"
    made.write(file)
    read = Incidence.read(file)
    assert (read.sha256, read.n_records, read.n_secrets, pairs(read)) == (made.sha256, len(rows), 5, flat)


@pytest.mark.parametrize(
    ("records", "secrets"),
    [([0, 0], [1, 1]), ([1, 0], [0, 0]), ([0, 0], [1, 0]), ([2], [0]), ([-1], [0]), ([0], [2]), ([0], [0, 1])],
)
def test_pairs_out_of_order_or_range_are_no_incidence(records: list[int], secrets: list[int]) -> None:
    with pytest.raises(ValueError):
        Incidence(2, 2, np.array(records), np.array(secrets))


def test_the_content_hash_tells_every_part_apart() -> None:
    one, none = np.array([0]), np.array([], dtype=np.int64)
    made = [Incidence(records, secrets, one, one) for records, secrets in ((1, 1), (2, 1), (1, 2))]
    assert len({each.sha256 for each in [*made, Incidence(1, 1, none, none)]}) == 4


def test_a_table_that_agrees_passes_and_any_other_does_not(tmp_path: Path) -> None:
    texts = ["Ann", "Bob", "Ann Bob", "x"]
    corpus = table(*texts, secrets=[["Ann"], ["Bob"], [], []])
    declared = incidence(corpus, secret_finder(corpus))
    check_incidence(corpus, secret_finder(corpus), declared)
    listed = [["Ann"], ["Bob"]]
    others = [
        (["Bob", "x", "Ann Bob", "Ann"], [["Bob"], [], [], ["Ann"]]),  # other order
        (texts[:3], [*listed, []]),
        ([*texts, "y"], [*listed, [], [], []]),
        (["Ann", "Bob", "Ann", "x"], [*listed, [], []]),
        (texts, [*listed, [], [PLANTED]]),
    ]
    for rows, secrets in others:
        other = table(*rows, secrets=secrets)
        with pytest.raises(CorpusError, match="declared public") as caught:
            check_incidence(other, secret_finder(other), declared)
        assert "Xanthippe" not in str(caught.value)


def test_the_file_and_the_repr_hold_no_secret(tmp_path: Path) -> None:
    corpus = table(PLANTED, "x@quillfeather.example", secrets=[[PLANTED], []])
    finder = secret_finder(corpus, detectors=["email"])
    made = incidence(corpus, finder)
    made.write(tmp_path / "i.parquet")
    content = (tmp_path / "i.parquet").read_bytes().lower()
    for shown in (content, repr(made).encode().lower(), repr(finder).encode().lower()):
        assert not any(word in shown for word in (b"quillfeather", b"xanthippe"))


def rewritten(file: Path, **changes: object) -> None:
    made = pq.read_table(file)
    about = json.loads(made.schema.metadata[b"understudy"]) | changes
    pq.write_table(made.replace_schema_metadata({b"understudy": json.dumps(about)}), file)


@pytest.mark.parametrize(
    "changes", [{"records": 7}, {"records": 1}, {"secrets": "many"}, {"format": "x"}, {"sha256": "0"}, {"version": 2}]
)
def test_a_changed_incidence_file_is_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    file = tmp_path / "i.parquet"
    Incidence(3, 2, np.array([0, 2]), np.array([0, 1])).write(file)
    rewritten(file)
    Incidence.read(file)
    rewritten(file, **changes)
    with pytest.raises(ConfigError, match=r"i\.parquet"):
        Incidence.read(file)


def test_what_is_no_incidence_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "i.parquet").write_bytes(b"PAR1 or not")
    pq.write_table(pa.table({"record": [0], "secret": [0]}), tmp_path / "j.parquet")
    pq.write_table(pa.table({"x": ["a"]}).replace_schema_metadata({b"understudy": b"[]"}), tmp_path / "k.parquet")
    for name in "ijkl":
        with pytest.raises(ConfigError, match="no incidence file"):
            Incidence.read(tmp_path / f"{name}.parquet")


def test_no_source_of_secrets_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="secrets"):
        secret_finder(table("x"))
