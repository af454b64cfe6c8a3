"""No encoding that is accepted lets the bytes of one row change how a later row is read."""

from __future__ import annotations

import codecs
import encodings
import itertools
import pkgutil

import pytest
from corpus_tables import texts_of

from understudy.base.errors import ConfigError
from understudy.corpus import read_corpus
from understudy.corpus.sources import check_encoding

LEADS = [bytes(pair) for pair in itertools.product(range(256), repeat=2)]
LEADS += [bytes(triple) for triple in itertools.product((0x30, 0x41, 0x81, 0x8E, 0x8F, 0xA4, 0xE3, 0xFF), repeat=3)]


def accepted() -> list[str]:
    names = []
    for module in pkgutil.iter_modules(encodings.__path__):
        try:
            check_encoding(module.name)
        except ConfigError:
            continue
        names.append(module.name)
    return names


MULTIBYTE = ["utf_8", "shift_jis", "cp932", "gbk", "gb2312", "gb18030", "big5", "cp949", "cp950", "euc_jp", "euc_kr"]


def test_the_usual_encodings_are_accepted_by_any_of_their_names():
    wanted = ["ascii", "latin_1", "cp1252", "iso8859_15", "koi8_r", "mac_roman", "mac_latin2", "utf_8_sig", *MULTIBYTE]
    assert set(wanted) <= set(accepted())
    for alias in ("UTF-8", "utf8", "Latin-1", "windows-1252", "sjis", "EUC-JP", "ms932", "us-ascii"):
        check_encoding(alias)


@pytest.mark.parametrize("name", accepted())
def test_a_line_break_quote_or_comma_is_itself_after_whatever_bytes(name):
    decode = codecs.getdecoder(name)
    leads = LEADS if name in MULTIBYTE else [bytes([byte]) for byte in range(256)]
    for lead, end in itertools.product(leads, (b"\n", b"\r", b'"', b",", b"\t")):
        assert decode(lead + end, "surrogateescape")[0][-1] == end.decode()


REFUSED = [
    *("utf-7", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "iso2022_jp", "iso2022_kr", "iso2022_jp_2", "hz"),
    *("unicode_escape", "raw_unicode_escape", "punycode", "cp037", "cp424", "undefined", "hex"),
]


@pytest.mark.parametrize("encoding", REFUSED)
def test_an_encoding_in_which_a_row_could_change_later_rows_is_refused_with_its_cure(write, encoding):
    with pytest.raises(ConfigError, match="Convert the file to UTF-8"):
        read_corpus(write("t.csv", "note\none\n"), text="note", encoding=encoding)


@pytest.mark.parametrize("encoding", MULTIBYTE)
def test_half_a_character_at_the_end_of_a_row_spoils_that_row_only(write, encoding):
    path = write("t.csv", b"note\none\nbad \x81\nbad \xe3\ntwo\n")
    assert texts_of(read_corpus(path, text="note", encoding=encoding, on_bad_row="skip")) == ["one", "two"]
