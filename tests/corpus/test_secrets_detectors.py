"""The built-in detectors, and their checksums against published examples."""

from __future__ import annotations

import logging
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.base.errors import ConfigError
from understudy.corpus.secrets import BUILT_IN, SecretFinder, detectors, make_detectors
from understudy.corpus.secrets.detectors import IBAN_LENGTHS, luhn, mod11, mod97

FOUND = {
    "email": {
        "Write to Ann.Smith+x@Mail.Example.ORG.": "ann.smith+x@mail.example.org",
        "<mailto:o'brien@example.co.uk>": "o'brien@example.co.uk",
        "jürgen@müller.example": "jürgen@müller.example",
        "a@b@c.example": "b@c.example",
        "x@example.xn--p1ai": "x@example.xn--p1ai",
    },
    "phone": {
        "call +44 20 7946 0123 now": "+442079460123",
        "+44 (0)20 7946-0123": "+442079460123",
        "0044-20-7946-0123": "+442079460123",
        "(555) 867-5309,": "5558675309",
        "07700900123": "07700900123",
        "on 2/3/2021 ring 020 7946 0123": "02079460123",
        "+41 (0)69 979 80 58": "+41699798058",
        "fax\n+447700677662 mobile": "+447700677662",  # its digits are those of a card
        "555-123-4567 10:30": "5551234567",
        "4111 1111 1111 1111 555-123-4567": "5551234567",
        "203.0.113.17 555-123-4567": "5551234567",
    },
    "iban": {
        "GB82 WEST 1234 5698 7654 32 today": "gb82west12345698765432",
        "de89370400440532013000": "de89370400440532013000",
        "to NO93 8601 1117 947.": "no9386011117947",
        "no12 gb82 west 1234 5698 7654 32": "gb82west12345698765432",  # a false start hides nothing
        "MT84MALT011000012345MTLCAST001S": "mt84malt011000012345mtlcast001s",
    },
    "credit_card": {
        "4111 1111 1111 1111": "4111111111111111",
        "5555-5555-5555-4444": "5555555555554444",
        "amex 378282246310005": "378282246310005",
        "3782 822463 10005": "378282246310005",
        "6011111111111117 10/27": "6011111111111117",
    },
    "us_ssn": {"SSN 078-05-1120": "078051120", "219 09 9999": "219099999"},
    "nhs_number": {"NHS 943 476 5919": "9434765919", "943-476-5919": "9434765919", "9434765919": "9434765919"},
    "uk_nino": {"AA 12 34 56 C": "aa123456c", "ab123456d": "ab123456d"},
    "ip_address": {
        "ip:203.0.113.7:8080": "203.0.113.7",
        "2001:0DB8:0:0:0:0:0:1": "2001:db8::1",
        "at 2001:db8::ff00:42.": "2001:db8::ff00:42",
        "ip:2001:db8::1": "2001:db8::1",
        "2001:db8::1: refused": "2001:db8::1",
    },
    "url": {
        "see https://Example.org/a?b=c#d).": "example.org/a?b=c#d",
        "www.example.org/": "www.example.org",
        "at:https://www.example.org": "www.example.org",
    },
}
MISSED = {
    "email": ["ann@", "@example.org", "ann@example", "ann at example.org", "1@2.3"],
    "phone": [
        *("2021-03-04", "12/05/1990 10:30", "1.234.567.890", "078-05-1120", "4111 1111 1111 1111", "203.0.113.17"),
        *("4111 1111 1111 1111 10/27", "GB82 WEST 1234 5698 7654 32", "2023-01-01/2023-02-01", "203.0.113.7:8080"),
        *("12345", "90210-1234", "12345678", "1999-2003", "a5558675309", "+1234567", "1200 350"),
    ],
    "iban": [
        "GB82 WEST 1234 5698 7654 33",
        "GB82WEST1234569876543",
        "ZZ82WEST12345698765432",
        "xGB82WEST12345698765432",
    ],
    "credit_card": ["4111111111111112", "9111111111111111", "x4111111111111111", "41111111111111111"],
    "us_ssn": ["000-12-3456", "666-12-3456", "912-12-3456", "123-00-4567", "123-45-0000", "123-45 6789", "123456789"],
    "nhs_number": ["943 476 5918", "94347659190", "943476591"],
    "uk_nino": ["BG 12 34 56 C", "AA 12 34 56 E", "AA12345C"],
    "ip_address": ["256.1.1.1", "1.2.3", "10:20:30", "1.2.3.4.5", "::", "::1", "127.0.0.1", "std::vector"],
    "url": ["example.org", "http:", "httpsx"],
}


def find(name: str, text: str) -> list[str]:
    [detector] = make_detectors([name])
    return list(detector.find(text))


@pytest.mark.parametrize(
    ("name", "text", "secret"), [(name, *pair) for name, pairs in FOUND.items() for pair in pairs.items()]
)
def test_what_has_the_form_is_found_in_one_spelling(name: str, text: str, secret: str) -> None:
    assert find(name, text) == [secret]


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in MISSED.items() for text in texts])
def test_what_fails_the_form_or_its_check_is_not_found(name: str, text: str) -> None:
    assert find(name, text) == []


def test_every_detector_has_examples() -> None:
    assert set(FOUND) == set(MISSED) == set(BUILT_IN)


BESIDE = {
    "555-123-4567 555-987-6543": {"5551234567", "5559876543"},
    "555-123-4567-555-987-6543": {"5551234567", "5559876543"},
    "+1 415 555 2671 +1 415 555 2672": {"+14155552671", "+14155552672"},
    "555-867-5309 x12 555-867-5310": {"5558675309", "5558675310"},
    "call 555-123-4567 10 am": {"5551234567"},
    "call 555-9876 10 am": {"5559876"},
    "02 123 45 67 10 am": {"021234567"},
    "555-123-4567 10am": {"5551234567"},
    "555-123-4567 (2 calls)": {"5551234567"},
}


@pytest.mark.parametrize("text", BESIDE)
def test_a_telephone_number_is_found_whatever_numbers_stand_beside_it(text: str) -> None:
    assert set(find("phone", text)) >= BESIDE[text]


NUMBERS = {
    "email": ["ann@example.org", "o'brien@mail.example.co.uk"],
    "iban": ["GB82 WEST 1234 5698 7654 32", "DE89370400440532013000", "NO93 8601 1117 947"],
    "credit_card": ["4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005", "3782 822463 10005"],
    "us_ssn": ["078-05-1120", "219 09 9999"],
    "nhs_number": ["943 476 5919", "943-476-5919", "4010232137"],
    "uk_nino": ["AA 12 34 56 C", "ab123456d"],
    "ip_address": ["203.0.113.7", "198.51.100.23", "2001:db8::ff00:42"],
    "url": ["https://example.org/a?b=c", "www.example.com"],
}
JOINS = [" ", "/", ", ", "-", "\n", " 10 ", " (2) ", ",", "; "]
PHONES = st.sampled_from(["###-###-####", "(###) ###-####", "+1 ### ### ####", "### ### ####", "0## #### ####"]) | (
    st.sampled_from(["+44 20 #### ####", "01 ## ## ## ##", "2# ## ## ##", "###.###.####", "07700######", "###-####"])
)


@st.composite
def phone(draw: st.DrawFn) -> str:
    digits = st.sampled_from("3456789")  # neither years nor months
    return "".join(draw(digits) if place == "#" else place for place in draw(PHONES))


@given(st.lists(phone(), min_size=2, max_size=3), st.sampled_from(JOINS))
def test_telephone_numbers_side_by_side_are_all_found(numbers: list[str], join: str) -> None:
    [detector] = make_detectors(["phone"])
    assert {detector.whole(number) for number in numbers} <= set(detector.find(join.join(numbers)))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("join", JOINS)
def test_secrets_of_any_kind_side_by_side_are_all_found(name: str, join: str) -> None:
    if name == "url" and join in ("/", "-"):  # a part of the address
        return
    [detector] = make_detectors([name])
    for one in NUMBERS[name]:
        for other in NUMBERS[name]:
            assert {detector.whole(one), detector.whole(other)} <= set(detector.find(one + join + other))


def test_no_match_hides_another_one() -> None:
    assert "4111111111111111" in find("credit_card", "4111 1111 1111 1111 123")  # with a security code
    assert "4111111111111111" in find("credit_card", "2002 4111 1111 1111 1111")  # the first four groups pass too
    assert find("url", "https://a.example,https://b.example|www.c.example") == [
        "a.example",
        "b.example",
        "www.c.example",
    ]
    assert find("url", "https://a.example/?to=https://b.example") == ["a.example/?to=https://b.example", "b.example"]


@pytest.mark.parametrize(
    ("checksum", "number"), [(luhn, "79927398713"), (mod11, "4010232137"), (mod97, "be68539007547034")]
)
def test_a_checksum_catches_every_wrong_digit(checksum, number: str) -> None:
    assert checksum(number)
    for place, right in enumerate(number):
        if right.isdigit():
            wrong = [number[:place] + digit + number[place + 1 :] for digit in string.digits if digit != right]
            assert not any(map(checksum, wrong))


def test_no_country_has_two_lengths_of_iban() -> None:
    countries = [country for several in IBAN_LENGTHS.values() for country in several.split()]
    assert len(countries) == len(set(countries))


@pytest.mark.parametrize("name", ["ssn", "", "EMAIL"])
def test_an_unknown_detector_is_one_clear_error(name: str) -> None:
    with pytest.raises(ConfigError, match="email, phone, iban"):
        make_detectors([name])


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize(
    "unit",
    [
        *("a", "1.", "1 ", "a@", "a@a.", "1-", ":", "a:", "(1", "+1", "gb82 ", "http://", "' ", "2 (", "-"),
        *("555-123-4567 ", "+1 415 555 2671 ", "a@a.aa-", ",www.", "4111 "),
    ],
)
def test_a_long_hostile_text_is_read_to_its_end(name: str, unit: str) -> None:
    length = 50_000 if name == "phone" else 200_000  # eight runs of every group are looked at: linear, but slow
    find(name, unit * (length // len(unit)))  # never ends where an expression goes back over what it has read


@given(st.text(alphabet=string.ascii_letters + string.digits + " @.-+()/:_'\u0131\u017f\u0663", max_size=60))
def test_no_text_is_too_strange_for_a_detector(text: str) -> None:
    for detector in make_detectors(BUILT_IN):
        for secret in detector.find(text):
            assert secret
        detector.whole(text)


# -- detectors of the extra ``pii`` -----------------------------------------------------------------------------------


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
