"""From what the user typed to files that can be read again and again, in encodings in which a row stays in its row."""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import io
import lzma
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, cast

from understudy.errors import ConfigError, CorpusError
from understudy.files import PRIVATE_MODE, atomic_file, private_folder, require_local

Format = Literal["csv", "tsv", "jsonl", "parquet"]
Compression = Literal["gz", "bz2", "xz", "zst"]

_FORMATS: dict[str, Format] = {
    "csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet",
}  # fmt: skip
SPOOL = "stdin.spool"
"""The copy of standard input in the private folder, until the corpus is closed."""
_COMPRESSIONS: tuple[Compression, ...] = ("gz", "bz2", "xz", "zst")


@dataclass(frozen=True)
class DataFile:
    """One file of a table.

    ``shown`` is what the user typed (the pattern, for a glob): errors quote this and not the file's own name.
    """

    path: Path
    shown: str
    format: Format
    compression: Compression | None

    def open(self) -> IO[bytes]:
        """Open for reading, decompressed."""
        match self.compression:
            case "gz":
                return cast("IO[bytes]", gzip.open(self.path, "rb"))
            case "bz2":
                return bz2.open(self.path, "rb")
            case "xz":
                return lzma.open(self.path, "rb")
            case "zst":
                import pyarrow as pa

                return io.BufferedReader(cast("Any", pa.input_stream(str(self.path), compression="zstd")))
        return self.path.open("rb")

    def open_text(self, encoding: str) -> io.TextIOWrapper:
        """Open for reading text, without a byte order mark; bytes that cannot be decoded become surrogates.

        Lines end at LF, which is kept. No other character ends one: a text may hold a carriage return.
        """
        encoding = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
        return io.TextIOWrapper(self.open(), encoding, errors="surrogateescape", newline="\n")


def find_files(sources: Iterable[str | os.PathLike[str]], *, format: str | None) -> tuple[DataFile, ...]:  # noqa: A002
    """The files that paths and glob patterns name: patterns sorted, a file named twice taken once.

    A path that exists is never taken for a pattern; ``format`` (``csv``, ``jsonl.gz``, ...) overrules the names.

    Raises:
        CorpusError: a file is not there, or a pattern matches none.
        ConfigError: a path is a folder or an address, or a format cannot be told, or the formats differ.
    """
    found: dict[Path, DataFile] = {}
    for source in sources:
        shown = os.fspath(source)
        require_local(shown)
        for path in _expand(shown):
            found.setdefault(path.resolve(), describe_file(path, shown, format))
    files = tuple(found.values())
    if len({file.format for file in files}) > 1:
        raise ConfigError("The files are of different formats.", "Give files of one format, or name it with --format.")
    return files


def describe_file(path: Path, shown: str, format: str | None) -> DataFile:  # noqa: A002
    """``path`` with its format and compression, by its name or, first, by ``format``."""
    kind, compression = _kind_of(path.name)
    if format is not None:
        kind, outer = _kind_of(f"x.{format}")
        compression = outer or compression
        if kind is None:
            raise ConfigError(f"The format {format!r} is unknown.", "Formats are csv, tsv, jsonl and parquet.")
    if kind is None:
        raise ConfigError(
            f"The format of {shown!r} cannot be told from its name.", "Name it: --format csv, tsv, jsonl or parquet."
        )
    if kind == "parquet" and compression is not None:
        raise ConfigError(
            f"A Parquet file that is compressed as a whole ({shown!r}) cannot be read in place.",
            "Decompress it: Parquet compresses its own columns.",
        )
    return DataFile(path, shown, kind, compression)


def spool_stdin(private_dir: Path | None) -> Path:
    """Copy standard input to a file that can be read again: in ``private_dir``, or a temporary one (mode 0600)."""
    if private_dir is not None:
        path = private_folder(private_dir) / SPOOL
        with atomic_file(path, mode=PRIVATE_MODE) as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        return path
    with tempfile.NamedTemporaryFile(prefix="understudy-", delete=False) as temporary:
        try:
            shutil.copyfileobj(sys.stdin.buffer, temporary)
        except BaseException:
            Path(temporary.name).unlink()
            raise
    return Path(temporary.name)


def _expand(shown: str) -> list[Path]:
    path = Path(shown).expanduser()
    if path.is_dir():
        raise ConfigError(f"{shown!r} is a folder.", "Name its files, with a pattern such as 'FOLDER/*.csv'.")
    if path.is_file():
        return [path]
    if path.exists():
        raise ConfigError(
            f"{shown!r} is a pipe or device, which can be read only once.", "Give it as standard input, with -."
        )
    if not glob.has_magic(shown):
        raise CorpusError(f"There is no file {shown!r}.", "Check the path.")
    paths = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207  (of absolute patterns too)
    paths = [path for path in paths if path.is_file()]
    if not paths:
        raise CorpusError(f"No file matches {shown!r}.", "Check the pattern, and quote it against the shell.")
    return paths


def _kind_of(name: str) -> tuple[Format | None, Compression | None]:
    """Format and compression by a name's endings."""
    stem, _, last = name.lower().rpartition(".")
    for compression in _COMPRESSIONS:
        if last == compression:
            return _FORMATS.get(stem.rpartition(".")[2]), compression
    return _FORMATS.get(last), None


_SELF_CONTAINED = re.compile(
    r"utf-8(-sig)?|ascii|cp\d+|iso8859-\d+|koi8-[rtu]|mac-[a-z0-9]+"  # cp932, cp949 and cp950 among them: no shifts
    r"|shift_jis|gbk|gb2312|gb18030|big5|euc_(jp|kr|jis_2004|jisx0213)"
)


def check_encoding(encoding: str) -> None:
    """Refuse encodings with shift states (ISO 2022, HZ, UTF-7) or units of several bytes (UTF-16, UTF-32), and EBCDIC.

    In those a stray byte in one row changes all rows behind it, or ends the reading. In those that are accepted a line
    break, quote, comma or tab is the byte that it is in ASCII, and never part of a longer character.
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
