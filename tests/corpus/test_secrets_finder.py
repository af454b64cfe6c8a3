"""Which strings are in a text: boundaries, overlap, spellings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import ConfigError, CorpusError
from understudy.corpus import Corpus, read_corpus
from understudy.corpus import secrets as scanner
from understudy.corpus.normalise import fold, pieces, readings, tidy

WORDS = st.text("ab \n.-", max_size=12)


def find(text: str, *strings: str, detectors: tuple[str, ...] = ()) -> list[str]:
    return sorted(scanner.SecretFinder(strings, detectors=scanner.make_detectors(detectors)).find(text))


@pytest.mark.parametrize("text", ["Ann", "Ann's", "to Ann.", "(ann)", "x_ann", "ANN-Marie", "Hello,Ann", "ann\u2019s"])
def test_a_string_is_found_where_no_letter_or_digit_touches_it(text: str) -> None:
    assert find(text, "Ann") == ["ann"]


@pytest.mark.parametrize("text", ["Annual", "Joann", "Ann2", "2ann", "an n", "Annä", "Ann\u0302e", ""])
def test_a_string_is_not_found_inside_a_word(text: str) -> None:
    assert find(text, "Ann") == []


def test_secrets_that_overlap_are_all_found() -> None:
    assert find("Ann Smith Jones", "Ann", "Ann Smith", "Smith Jones", "Jones", "Ann Jones") == [
        "ann",
        "ann smith",
        "jones",
        "smith jones",
    ]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("ann\n\t SMITH", "Ann Smith"),
        ("\uff21\uff4e\uff4e", "Ann"),  # full width
        ("STRASSE", "Straße"),
        ("O\u2019Brien", "O'Brien"),
        ("Anne\u2011Marie", "anne-marie"),
        ("Sea\u0301n", "Se\u00e1n"),
        ("An\u00adn", "Ann"),  # a soft hyphen
        ("Bob\u200bAnn", "Ann"),  # a space of no width
        ("no. \u0661\u0662\u0663", "123"),  # Arabic digits
        ("(ref: #7/b)", "#7/B"),
    ],
)
def test_spellings_of_a_secret_count_as_equal(text: str, secret: str) -> None:
    assert find(text, secret) == [fold(secret)]


@pytest.mark.parametrize(("text", "secret"), [("田中さんは", "田中"), ("김철수는", "김철수"), ("นายสมชายมา", "สมชาย")])
def test_scripts_without_spaces_have_no_words_to_be_inside_of(text: str, secret: str) -> None:
    assert find(text, secret) == [secret]


def test_a_vowel_sign_belongs_to_its_word() -> None:
    assert find("राम", "रा") == []
    assert find("राम गया", "राम") == ["राम"]


def test_a_string_without_letter_or_digit_is_no_secret() -> None:
    finder = scanner.SecretFinder(["-", " ", "\u200d", "?!"], listed=["--"])
    assert (finder.numbered, finder.find("- ?! --"), finder.key("-")) == ((), set(), "")


def test_a_listed_number_and_one_that_a_detector_finds_are_one_secret() -> None:
    assert find("card 4111-1111-1111-1111", "4111 1111 1111 1111", detectors=("credit_card",)) == ["4111111111111111"]
    assert find("card 4111 1111 1111 1111", "4111 1111 1111 1111", detectors=("credit_card",)) == ["4111111111111111"]
    assert find("0044 20 7946 0123", "+44 (0)20 7946 0123", detectors=("phone",)) == ["+442079460123"]


def test_numbers_follow_the_order_of_the_strings() -> None:
    assert scanner.SecretFinder(["b", "A", " ", "B", "c"], listed=["0"]).numbered == ("b", "a", "c")


def test_a_finder_shows_nothing() -> None:
    finder = scanner.SecretFinder(["Planted"], listed=["Other"])
    assert f"{finder} {finder!r}" == "SecretFinder() SecretFinder()"


@given(st.text(max_size=40))
def test_folding_twice_changes_nothing_and_pieces_make_the_text_again(text: str) -> None:
    folded = fold(text)
    assert fold(folded) == folded
    assert tidy(tidy(text)) == tidy(text)
    assert "".join(pieces(folded)) == folded


@given(st.lists(WORDS, max_size=6), WORDS)
def test_the_finder_agrees_with_a_search_at_every_place(strings: list[str], text: str) -> None:
    def stands_at(secret: str, start: int) -> bool:
        inside = [folded[max(place - 1, 0) : place + 1] for place in (start, start + len(secret))]
        return folded.startswith(secret, start) and not any(len(two) == 2 and two.isalpha() for two in inside)

    folded = fold(text)
    secrets = {fold(string) for string in strings if re.search("[ab]", string)}
    assert scanner.SecretFinder(strings).find(text) == {
        secret for secret in secrets if any(stands_at(secret, start) for start in range(len(folded)))
    }


@given(st.text(min_size=1, max_size=15), st.sampled_from(["", " ", "\n", "(", "'", "\u2003"]))
def test_a_secret_between_things_that_are_no_words_is_always_found(secret: str, around: str) -> None:
    finder = scanner.SecretFinder([secret])
    assert finder.find(around + secret + around) >= set(finder.numbered)


def test_a_hundred_thousand_strings_with_long_runs_are_searched_without_a_search_for_each() -> None:
    strings = [f"word{i} tail{i % 7}" for i in range(100_000)]
    finder = scanner.SecretFinder(strings)
    text = " ".join(f"word{i} tail{i % 7} other" for i in range(0, 100_000, 100))
    assert len(finder.find(text * 3)) == 1000


# -- invisible characters make no difference, in a text or in a secret, whether they are read as nothing or as blanks -


INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180e\u180f\u200b\u200c\u200d\u200e\u200f\u202a\u202e"
    "\u2060\u2061\u2064\u2065\u2066\u206f\u3164\ufe00\ufe0e\ufe0f\ufeff\uffa0\ufff0\ufff8\U0001bca0\U0001d173\U000e0001"
    "\U000e0041\U000e0100\U000e01ef\U000e0fff\u2800\ufffc\x00\x01\x07\x08\x0e\x1b\x1f\x7f\x80\x9f"
)
ids = [f"U+{ord(each):04X}" for each in INVISIBLE]


def found_in(text: str, *strings: str, detectors: tuple[str, ...] = ()) -> set[str]:
    return scanner.SecretFinder(strings, detectors=scanner.make_detectors(detectors)).find(text)


@pytest.mark.parametrize("invisible", INVISIBLE, ids=ids)
def test_an_invisible_character_hides_no_secret(invisible: str) -> None:
    for text in (f"Mr. Smi{invisible}th.", f"S{invisible * 3}mith", f"x{invisible}Smith", f"Smith{invisible}Jones"):
        assert found_in(text, "Smith") == {"smith"}
    for text in (f"Ann{invisible}Smith", f"Ann {invisible}Smith", f"A{invisible}nn Smi{invisible}th"):
        assert found_in(text, "Ann Smith") == {"ann smith"}
    assert found_in(f"Bob{invisible}An{invisible}n{invisible}Sm{invisible}ith!", "Ann Smith") == {"ann smith"}  # mixed


@pytest.mark.parametrize("invisible", INVISIBLE, ids=ids)
def test_an_invisible_character_in_a_secret_hides_it_from_no_text(invisible: str) -> None:
    (key,) = scanner.SecretFinder([f"Ann{invisible}Smith"]).numbered
    for text in ("Ann Smith", "AnnSmith", f"Ann{invisible}Smith", f"A{invisible}nnSmith", "Ann\u200bSmith"):
        assert found_in(text, f"Ann{invisible}Smith") == {key}


@pytest.mark.parametrize("invisible", INVISIBLE, ids=ids)
def test_an_invisible_character_hides_nothing_from_detectors(invisible: str) -> None:
    found = found_in(f"to ann{invisible}@exa{invisible}mple.org", detectors=("email",))
    assert "ann@example.org" in found
    assert "ann@example.org" in found_in(f"ann@example.org{invisible}Next", detectors=("email",))
    for card in (f"4111{invisible}1111{invisible}1111{invisible}1111", f"41{invisible}11 1111 1111 1111"):
        assert "4111111111111111" in found_in(card, detectors=("credit_card",))
    assert "4111111111111111" in found_in(f"4111{invisible}111111111111", f"41111111{invisible}11111111",
                                      detectors=("credit_card",))  # fmt: skip


def test_two_words_with_a_blank_between_them_are_not_one_word() -> None:
    assert found_in("Ann Smith", "AnnSmith") == set()
    assert found_in("Ann S\u200bmith", "AnnSmith") == set()
    assert found_in("AnnSmi\u200bth", "Ann Smith") == set()
    assert found_in("Annu\u200bal", "Annual", "Ann") == {"annual"}


def test_a_secrets_column_counts_strings_that_look_alike_as_held_together() -> None:
    rows = [
        {"note": "one", "who": ["Smi\u200bth"]},
        {"note": "Mr. Smith", "who": []},
        {"note": "two", "who": ["Smith"]},
    ]
    corpus = read_corpus(rows, text="note", secrets="who")
    counts = scanner.records_per_secret(corpus, scanner.secret_finder(corpus))
    assert counts == {"smi th": 3, "smith": 3}


@given(st.text(st.sampled_from("ab \u200b\u00ad"), max_size=10), st.text(st.sampled_from("ab "), max_size=6))
def test_every_way_to_read_each_invisible_character_is_searched(text: str, secret: str) -> None:
    finder = scanner.SecretFinder([secret])
    expected = set()
    texts = [""]
    for character in text:
        options = ("", " ") if character in "\u200b\u00ad" else (character,)
        texts = [each + option for each in texts for option in options]
    for each in texts:
        expected |= scanner.SecretFinder([secret]).find(each)
    found = finder.find(text)
    assert found >= expected
    if fold(secret) in found:  # and nothing that stands in no reading, but for what begins or ends at a joint
        squeezed = "".join(text.replace("\u200b", "").replace("\u00ad", "").split())
        assert "".join(secret.split()) in squeezed


@given(st.text(st.sampled_from([*INVISIBLE, "a", "B", " ", "\u0301", "\uac00", "\u1100"]), max_size=12))
def test_folding_twice_changes_nothing_with_invisible_characters(text: str) -> None:
    assert fold(fold(text)) == fold(text)
    assert tidy(tidy(text)) == tidy(text)
    assert "".join(pieces(fold(text))) == fold(text)
    assert not any(character in INVISIBLE for character in fold(text))


def test_a_text_without_invisible_characters_is_read_once() -> None:
    assert readings("Ann Smith\n\t") == ("Ann Smith\n\t",)
    assert readings("Zoë") == ("Zoë",)
    assert readings("a\u00adb") == ("a\u00adb", "ab", "a b")


# -- which record holds which secret, the cap, and the incidence file -------------------------------------------------

PLANTED = "Xanthippe Quillfeather"


def table(*texts: str, secrets: list[list[str]] | None = None) -> Corpus:
    rows = [{"note": text} for text in texts]
    if secrets is None:
        return read_corpus(rows, text="note")
    return read_corpus(
        [{**row, "who": who} for row, who in zip(rows, secrets, strict=True)], text="note", secrets="who"
    )


def pairs(made: scanner.Incidence) -> list[tuple[int, int]]:
    return list(zip(made.records.tolist(), made.secrets.tolist(), strict=True))


def test_a_string_of_the_column_counts_in_every_text_that_holds_it() -> None:
    corpus = table("Ann came", "no one", "ANN left", "Annual", secrets=[["Ann"], [], [], []])
    assert list(scanner.secrets_of_records(corpus, scanner.secret_finder(corpus))) == [{"ann"}, set(), {"ann"}, set()]


def test_a_row_holds_what_it_lists_even_where_its_text_spells_it_otherwise() -> None:
    corpus = table("Annas Brief", "x", secrets=[["Anna", "-"], []])
    assert list(scanner.secrets_of_records(corpus, scanner.secret_finder(corpus))) == [{"anna"}, set()]


def test_column_file_and_detectors_combine(write) -> None:
    file = write("secrets.txt", "\ufeffBob\r\n\r\n  Eve  \r\n")
    corpus = table("Ann, bob@example.org", "EVE", secrets=[["Ann"], []])
    finder = scanner.secret_finder(corpus, file=file, detectors=["email"])
    assert list(scanner.secrets_of_records(corpus, finder)) == [{"ann", "bob", "bob@example.org"}, {"eve"}]


def test_a_json_record_is_searched_value_by_value() -> None:
    rows = [{"a": 'line\nAnn said "hi"\\Bob', "b": {"Eve": [7, None, True]}, "c": 4111111111111111}]
    corpus = read_corpus(rows, record_columns=["a", "b", "c"])
    for secret in ("Ann", "Bob", "Eve", "7", "hi"):
        finder = scanner.secret_finder(corpus, file=None, detectors=["credit_card"])
        finder = type(finder)([secret, "a"], detectors=())
        assert list(scanner.secrets_of_records(corpus, finder)) == [{secret.casefold()}]
    assert scanner.records_per_secret(corpus, scanner.secret_finder(corpus, detectors=["credit_card"])) == {
        "4111111111111111": 1
    }


@pytest.mark.parametrize("content", [None, b"\xff\xfePlanted"])
def test_a_file_of_secrets_that_cannot_be_read_is_one_clear_error(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "secrets.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CorpusError) as caught:
        scanner.secret_finder(table("x"), file=file)
    assert "Planted" not in str(caught.value)


def test_the_cap_holds_at_its_value_and_is_broken_above_it() -> None:
    corpus = table(f"{PLANTED} came", f"and {PLANTED} {PLANTED}", "x", secrets=[[PLANTED], [], []])
    finder = scanner.secret_finder(corpus)
    scanner.check_records_per_secret(corpus, finder, 2)
    with pytest.raises(CorpusError) as caught:
        scanner.check_records_per_secret(corpus, finder, 1)
    message = str(caught.value).casefold()
    assert not any(private in message for private in ("xanthippe", "quillfeather", "1", "2", "3"))


def test_the_cap_holds_for_a_table_without_a_secret_or_without_a_row() -> None:
    for corpus in (table("x"), table()):
        scanner.check_records_per_secret(corpus, scanner.secret_finder(corpus, detectors=["email"]), 1)


def test_strings_of_the_file_have_the_first_numbers_in_its_order(write) -> None:
    file = write("secrets.txt", "zoe\nnobody\nANN\nann\n")
    corpus = table("zoe", "bob ann", "bob", secrets=[[], ["bob"], []])
    made = scanner.incidence(corpus, scanner.secret_finder(corpus, file=file))
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
        files.add(scanner.incidence(corpus, scanner.secret_finder(corpus)).sha256)
    assert len(files) == 1


def test_the_matrix_has_a_row_a_secret_and_a_column_a_record() -> None:
    made = scanner.Incidence(3, 2, np.array([0, 0, 2]), np.array([0, 1, 1]))
    assert made.to_csr().toarray().tolist() == [[1, 0, 0], [1, 0, 1]]
    assert scanner.Incidence(0, 0, np.array([]), np.array([])).to_csr().shape == (0, 0)


@given(st.lists(st.sets(st.integers(0, 4)), max_size=8))
def test_an_incidence_comes_back_from_its_file(tmp_path_factory, rows: list[set[int]]) -> None:
    flat = [(record, secret) for record, row in enumerate(rows) for secret in sorted(row)]
    records, secrets = np.array(flat, dtype=np.int64).reshape(-1, 2).T
    made = scanner.Incidence(len(rows), 5, records, secrets)
    file = tmp_path_factory.mktemp("incidence") / "incidence.parquet"
    made.write(file)
    read = scanner.Incidence.read(file)
    assert (read.sha256, read.n_records, read.n_secrets, pairs(read)) == (made.sha256, len(rows), 5, flat)


@pytest.mark.parametrize(
    ("records", "secrets"),
    [([0, 0], [1, 1]), ([1, 0], [0, 0]), ([0, 0], [1, 0]), ([2], [0]), ([-1], [0]), ([0], [2]), ([0], [0, 1])],
)
def test_pairs_out_of_order_or_range_are_no_incidence(records: list[int], secrets: list[int]) -> None:
    with pytest.raises(ValueError):
        scanner.Incidence(2, 2, np.array(records), np.array(secrets))


def test_the_content_hash_tells_every_part_apart() -> None:
    one, none = np.array([0]), np.array([], dtype=np.int64)
    made = [scanner.Incidence(records, secrets, one, one) for records, secrets in ((1, 1), (2, 1), (1, 2))]
    assert len({each.sha256 for each in [*made, scanner.Incidence(1, 1, none, none)]}) == 4


def test_a_table_that_agrees_has_the_declared_incidence_and_any_other_has_not() -> None:
    texts = ["Ann", "Bob", "Ann Bob", "x"]
    corpus = table(*texts, secrets=[["Ann"], ["Bob"], [], []])
    declared = scanner.incidence(corpus, scanner.secret_finder(corpus))
    assert scanner.incidence(corpus, scanner.secret_finder(corpus)).sha256 == declared.sha256
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
        assert scanner.incidence(other, scanner.secret_finder(other)).sha256 != declared.sha256


def test_the_file_and_the_repr_hold_no_secret(tmp_path: Path) -> None:
    corpus = table(PLANTED, "x@quillfeather.example", secrets=[[PLANTED], []])
    finder = scanner.secret_finder(corpus, detectors=["email"])
    made = scanner.incidence(corpus, finder)
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
    scanner.Incidence(3, 2, np.array([0, 2]), np.array([0, 1])).write(file)
    rewritten(file)
    scanner.Incidence.read(file)
    rewritten(file, **changes)
    with pytest.raises(ConfigError, match=r"i\.parquet"):
        scanner.Incidence.read(file)


def test_what_is_no_incidence_file_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "i.parquet").write_bytes(b"PAR1 or not")
    pq.write_table(pa.table({"record": [0], "secret": [0]}), tmp_path / "j.parquet")
    pq.write_table(pa.table({"x": ["a"]}).replace_schema_metadata({b"understudy": b"[]"}), tmp_path / "k.parquet")
    for name in "ijkl":
        with pytest.raises(ConfigError, match="not an incidence file"):
            scanner.Incidence.read(tmp_path / f"{name}.parquet")


def test_no_source_of_secrets_is_one_clear_error() -> None:
    with pytest.raises(ConfigError, match="secrets"):
        scanner.secret_finder(table("x"))
