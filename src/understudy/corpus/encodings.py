"""Encodings in which a row stays in its row: no bytes of one row change how a later row is read."""

from __future__ import annotations

import codecs
import re

from understudy.errors import ConfigError

_SELF_CONTAINED = re.compile(
    r"utf-8(-sig)?|ascii|cp\d+|iso8859-\d+|koi8-[rtu]|mac-[a-z0-9]+"  # cp932, cp949 and cp950 among them: no shifts
    r"|shift_jis|gbk|gb2312|gb18030|big5|euc_(jp|kr|jis_2004|jisx0213)"
)


def check_encoding(encoding: str) -> None:
    """Refuse encodings with shift states (ISO 2022, HZ, UTF-7) or units of several bytes (UTF-16, UTF-32), and EBCDIC.

    In those a stray byte in one row changes all rows behind it, or ends the reading. In those that are accepted a line
    break, quote, comma or tab is the byte that it is in ASCII, and never part of a longer character.

    Raises:
        ConfigError: the encoding is unknown, or is none of these.
    """
    try:
        name = codecs.lookup(encoding).name
    except (LookupError, ValueError):
        raise ConfigError(f"The encoding {encoding!r} is unknown.", "Use utf-8, latin-1 or the like.") from None
    if not _SELF_CONTAINED.fullmatch(name) or b'\n\r\t,"'.decode(name) != '\n\r\t,"':
        raise ConfigError(
            f"In the encoding {encoding!r} one row could change how the rows behind it are read.",
            "Convert the file to UTF-8.",
        )
