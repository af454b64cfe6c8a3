"""The check digits of numbers that people carry. Each takes the number without separators."""

from __future__ import annotations

IBAN_LENGTHS = {
    15: "no",
    16: "be",
    18: "dk fi fk fo gl nl sd",
    19: "mk si",
    20: "at ba ee kz lt lu mn xk",
    21: "ch cr hr li lv",
    22: "bg bh de gb ge ie me rs va",
    23: "ae gi il iq om so tl",
    24: "ad cz es md pk ro sa se sk tn vg",
    25: "ly pt st",
    26: "is tr",
    27: "bi dj fr gr it mc mr sm",
    28: "al az by cy do gt hu lb ni pl sv",
    29: "br eg ps qa ua",
    30: "jo kw mu ye",
    31: "mt sc",
    32: "lc",
    33: "ru",
}
"""Characters of an IBAN, by country (ISO 13616; the SWIFT registry)."""


def luhn(digits: str) -> bool:
    """ISO/IEC 7812: every second digit from the right doubled, the digits' sum a multiple of 10.

    >>> luhn("4111111111111111"), luhn("4111111111111112")
    (True, False)
    """
    total = 0
    for position, digit in enumerate(map(int, reversed(digits))):
        total += digit if position % 2 == 0 else sum(divmod(2 * digit, 10))
    return total % 10 == 0


def mod97(iban: str) -> bool:
    """ISO 13616: the first four characters moved to the end, letters as 10 to 35, the number is 1 modulo 97.

    >>> mod97("gb82west12345698765432"), mod97("gb82west12345698765433")
    (True, False)
    """
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1


def mod11(digits: str) -> bool:
    """NHS number: the first nine digits weighted 10 to 2 and the tenth add up to a multiple of 11.

    >>> mod11("9434765919"), mod11("9434765918")
    (True, False)
    """
    return sum(int(digit) * (10 - position) for position, digit in enumerate(digits)) % 11 == 0
