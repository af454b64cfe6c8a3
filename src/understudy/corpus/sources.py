"""Find the files that the user named, which can be read any number of times, in encodings that keep rows separate.

pyarrow's file systems open the addresses of object stores (``s3://``, ``gs://``, ``abfs://``), with credentials from
the usual places: the environment, configuration files, the machine's identity. An address that contains credentials is
refused, since configurations are stored and printed.
"""

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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar, cast, get_args
from urllib.parse import unquote

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.files import PRIVATE_MODE, atomic_file, private_folder, require_local
from understudy.base.lazy import fs, pa

Format = Literal["csv", "tsv", "jsonl", "parquet"]
Compression = Literal["gz", "bz2", "xz", "zst"]

_FORMATS: dict[str, Format] = {
    "csv": "csv", "tsv": "tsv", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet",
}  # fmt: skip
_WORKBOOK = "Open it in the spreadsheet, save the sheet as CSV (in UTF-8, if it offers that), and name the CSV file."
_CONVERTED = {
    **dict.fromkeys(("xlsx", "xls", "xlsm", "xlsb", "ods", "numbers"), _WORKBOOK),
    **dict.fromkeys(("zip", "7z", "tar", "rar"), "Unpack it, and name the file or folder that was in it."),
    **dict.fromkeys(("sqlite", "db", "mdb", "accdb", "sav", "dta", "sas7bdat"), "Export the table as CSV or Parquet."),
    **dict.fromkeys(("yaml", "yml"), "It is a configuration, for the command: `understudy check --config FILE`."),
    "json": "Where each of its lines is one object, say --format jsonl. Write a list in brackets as JSON lines first: "
    "jq -c '.[]' FILE > FILE.jsonl.",
}
"""How files of other kinds can be converted."""
SPOOL = "stdin.spool"
"""The copy of standard input in the private folder, until the corpus is closed."""
_COMPRESSIONS: tuple[Compression, ...] = ("gz", "bz2", "xz", "zst")
_OPENERS: dict[str, Callable[[Any], Any]] = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
REMOTE_BUFFER_BYTES = 1 << 23
"""Concurrent requests to an object store: each takes long."""


Quotes = Literal["multiline", "line", "none"]
"""The meaning of quotes: RFC 4180, whose cells may contain line breaks; quoted cells within a line; or none."""
OnBadRow = Literal["error", "skip"]
MAX_BAD_ROWS = 0.05
"""Share of all rows that a run may skip."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Settings of how a table is read, other than the meaning of its columns; see
    :func:`understudy.corpus.read_corpus`."""

    format: str | None = None
    delimiter: str | None = None
    quotes: Quotes | None = None
    encoding: str = "utf-8"
    on_bad_row: OnBadRow = "error"
    max_bad_rows: float = MAX_BAD_ROWS
    max_cell_bytes: int = 1 << 20
    formulas_escaped: bool = False
    private_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.on_bad_row not in get_args(OnBadRow):
            raise ConfigError(f"Unknown value {self.on_bad_row!r} for on_bad_row.", "Use error or skip.")
        if not 0 <= self.max_bad_rows <= 1:
            raise ConfigError(f"{self.max_bad_rows!r} is not a share of the rows.", "Give max_bad_rows from 0 to 1.")
        if self.max_cell_bytes < 1:
            raise ConfigError(
                f"With a limit of {self.max_cell_bytes} bytes per cell, every row would be bad.",
                "Set max_cell_bytes to at least 1.",
            )
        single = isinstance(self.delimiter, str) and len(self.delimiter) == 1
        if self.delimiter is not None and (not single or self.delimiter in '"\r\n'):
            raise ConfigError(f"{self.delimiter!r} cannot separate cells.", "Use one character, such as ';'.")
        if self.quotes not in (None, *get_args(Quotes)):
            raise ConfigError(f"Unknown value {self.quotes!r} for quotes.", f"Use {', '.join(get_args(Quotes))}.")
        try:
            name = codecs.lookup(self.encoding).name
        except (LookupError, TypeError, ValueError):
            problem = f"The encoding {self.encoding!r} is unknown."
            raise ConfigError(problem, "Use utf-8, latin-1 or the like.") from None
        # A stray byte in one row changes all later rows, or ends the reading, in encodings with shift states (ISO 2022,
        # HZ, UTF-7) or units of several bytes (UTF-16, UTF-32), and in EBCDIC. In the others a line break, quote, comma
        # or tab is the same byte as in ASCII, and never part of a longer character.
        if not _SELF_CONTAINED.fullmatch(name) or b'\n\r\t,"'.decode(name) != '\n\r\t,"':
            raise ConfigError(
                f"In the encoding {self.encoding!r} one row could change how later rows are read.",
                "Convert the file to UTF-8.",
            )


@dataclass(frozen=True)
class DataFile:
    """One file of a table. It can be pickled, and contains no credentials.

    Attributes:
        path: its path: on this machine or, within its file system, in a store.
        shown: what the user typed (the pattern, for a glob): errors quote this and not the file's own name.
        store: the address of its bucket or container; None on this machine.
        partitions: columns in the names of its folders.
        named: whether the user named the file itself, and not a folder or pattern.
    """

    path: str
    shown: str
    format: Format
    compression: Compression | None
    store: str | None = None
    partitions: Partitions = ()
    named: bool = False

    @property
    def file_system(self) -> Any:
        """Return its ``pyarrow.fs.FileSystem``; None on this machine."""
        return None if self.store is None else file_system(self.store)

    def open_stored(self) -> IO[bytes]:
        """Open the file for reading as it is stored (perhaps compressed), with random access."""
        if self.store is None:
            return Path(self.path).open("rb")
        return cast("IO[bytes]", self.file_system.open_input_file(self.path))

    def open(self) -> IO[bytes]:
        """Open the file for reading, decompressed."""
        stored: Any = self.path
        if self.store is not None:  # buffered by Arrow: Python's read1 would ask for as little as it is asked for
            stream = self.file_system.open_input_stream(self.path, compression=None, buffer_size=REMOTE_BUFFER_BYTES)
            stored = io.BufferedReader(stream)
        if self.compression == "zst":
            return io.BufferedReader(cast("Any", pa.input_stream(stored, compression="zstd")))
        if self.compression is not None:
            return cast("IO[bytes]", _OPENERS[self.compression](stored))
        return self.open_stored() if self.store is None else cast("IO[bytes]", stored)

    def open_text(self, encoding: str) -> io.TextIOWrapper:
        """Open for reading text, without a byte order mark; bytes that cannot be decoded become surrogates.

        Lines end at LF, which is kept. No other character ends one: a text may contain a carriage return.
        """
        encoding = "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding
        return io.TextIOWrapper(self.open(), encoding, errors="surrogateescape", newline="\n")


def find_files(sources: Iterable[str | os.PathLike[str]], *, format: str | None) -> tuple[DataFile, ...]:  # noqa: A002
    """Return the files that paths, folders, patterns and addresses name: sorted for each, without repetition.

    An existing path is never a pattern; ``format`` (``csv``, ``jsonl.gz``, ...) overrules the names. Files added
    later are not read.
    """
    found: dict[tuple[str | None, str], DataFile] = {}
    for source in sources:
        for file in _files_of(os.fsdecode(source), format):
            found.setdefault((file.store, file.path if file.store else str(Path(file.path).resolve())), file)
    files = tuple(found.values())
    if len({file.format for file in files}) > 1:
        raise ConfigError(
            "The files have different formats.", "Give files of one format, or name the format of all with --format."
        )
    return files


_MOST_SHOWN = 255
_FEW_BLANKS = 3


def _has_ending(name: str) -> bool:
    """Return whether a name has the ending of a table, or of another file that people may mean."""
    return _kind_of(name)[0] is not None or name.rpartition(".")[2].lower() in _CONVERTED


def quoted(path: str, otherwise: str) -> str:
    """Return a path as it may be quoted in a message; ``otherwise`` if the value may be private text instead of a
    path."""
    one = not re.search(r"\s", path) or (len(path.split()) <= _FEW_BLANKS + 1 and _has_ending(path))
    return repr(path) if one and len(path) <= _MOST_SHOWN and path.isprintable() else otherwise


def is_texts(values: Sequence[object]) -> bool:
    """Return whether a list contains texts, some of which may be missing, and not paths.

    Raises ConfigError, without quoting any, if some of the strings name files and others do not.
    """
    strings = [each for each in values if isinstance(each, str)]
    missing = all(isinstance(each, str) or each is None or each != each for each in values)  # NaN is not itself
    if not strings or not missing or strings == ["-"]:
        return False
    files = sum(map(_names_file, strings))
    if files and files < len(strings):
        raise ConfigError(
            "Some strings of the list are names of files, but others are not.",
            'Give paths that all exist; or, for texts, a list with a dict per row: [{"text": "..."}, ...].',
        )
    return not files


def _names_file(given: str) -> bool:
    if len(given) > _LONGEST_PATH or not given.isprintable() or not any(map(str.isalnum, given)):
        return False
    plain = not re.search(r"\s", given)
    if plain and (_has_ending(given) or _ADDRESS.match(given)):
        return True
    path = os.path.expanduser(given)  # noqa: PTH111 - a Path's raises where there is no such user
    if glob.has_magic(given) and (plain or _has_ending(given)) and any(glob.iglob(path)):  # noqa: PTH207
        return True
    return os.path.exists(path)  # noqa: PTH110 - a Path's raises where a name is too long


_LONGEST_PATH = 4096
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


def describe_file(path: str, shown: str, format: str | None) -> DataFile:  # noqa: A002
    """Return ``path`` with its format and compression, from ``format`` if it is given, else from its name."""
    kind, compression = _kind_of(path)
    if format is not None:
        kind, outer = _named_kind(format)
        compression = outer or compression
    if kind is None and (cure := _CONVERTED.get(Path(path).suffix.lower().lstrip("."))):
        raise ConfigError(f"The format of {shown!r} is not supported.", cure)
    if kind is None:
        raise ConfigError(
            f"The format of {shown!r} is not clear from its name.", "Name it: --format csv, tsv, jsonl or parquet."
        )
    if kind == "parquet" and compression is not None:
        raise ConfigError(
            f"A Parquet file that is compressed as a whole ({shown!r}) cannot be read in place.",
            "Decompress it: Parquet compresses its own columns.",
        )
    return DataFile(path, shown, kind, compression)


SPOOLS_IN_USE: set[Path] = set()
"""Temporary copies in use by corpora of this process."""


def spool_stdin(private_dir: Path | None) -> Path:
    """Copy standard input to a file that can be read again: in ``private_dir``, or a temporary one (mode 0600)."""
    if private_dir is not None:
        path = private_folder(private_dir).resolve() / SPOOL
        with atomic_file(path, mode=PRIVATE_MODE) as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        SPOOLS_IN_USE.add(path)
        return path
    with tempfile.NamedTemporaryFile(prefix="understudy-", delete=False) as temporary:
        try:
            shutil.copyfileobj(sys.stdin.buffer, temporary)
        except BaseException:
            Path(temporary.name).unlink()
            raise
    return Path(temporary.name)


def remove_spool(path: Path) -> None:
    path.unlink(missing_ok=True)
    SPOOLS_IN_USE.discard(path)


def _files_of(shown: str, format: str | None) -> list[DataFile]:  # noqa: A002
    address = parse_address(shown)
    if address is None:
        require_local(shown)
    store, path = (None, os.path.expanduser(shown)) if address is None else (address.store, address.path)  # noqa: PTH111
    base: str | None = path  # the folder below which names of folders are columns
    listed: list[str] = []
    match _type_of(store, path, shown):
        case "file":
            base, paths = None, [path]
        case "folder":
            listed = below(store, path, shown)
            paths = _of_one_format(listed, path, shown, format)
        case _:
            if not glob.has_magic(path):
                raise CorpusError(
                    f"There is no file {quoted(shown, 'of the name that was given')}.",
                    "Check the path. Texts are given as a list of strings.",
                )
            parts = path.split("/")
            wild = next(place for place, part in enumerate(parts) if glob.has_magic(part))
            base = "/".join(parts[:wild]) or ("/" if path.startswith("/") else "")
            if store is None:
                names = map(Path, glob.glob(path, recursive=True))  # noqa: PTH207  (of absolute patterns too)
                paths = [str(name) for name in sorted(names) if name.is_file()]
            else:
                pattern = names_below(path, base)
                listed = below(store, base, shown, recursive=len(pattern) > 1 or pattern == ["**"])
                paths = [name for name in listed if matches(names_below(name, base), pattern)]
    if not paths:
        raise CorpusError(
            f"No file matches {quoted(shown, 'the pattern that was given')}.",
            "Check the pattern, and quote it against the shell.",
        )
    files = [describe_file(path, shown, format) for path in paths]
    if any(file.format == "parquet" for file in files):
        above = _folders_above(paths) if store is None else _above(path.rpartition("/")[0] if base is None else base)
        refuse_versions(store, above, listed, shown)
    if base is None:
        return [replace(file, store=store, named=True) for file in files]
    return [
        replace(file, store=store, partitions=partitions(names_below(file.path, base)[:-1], shown)) for file in files
    ]


def _type_of(store: str | None, path: str, shown: str) -> Literal["file", "folder"] | None:
    if store is not None:
        found = asked(shown, lambda: file_system(store).get_file_info(path)).type
        return "folder" if found == fs.FileType.Directory else "file" if found == fs.FileType.File else None
    local = Path(path)
    if not os.path.lexists(path):  # which raises for no string, however long it is
        return None
    if local.exists() and not local.is_dir() and not local.is_file():
        raise ConfigError(
            f"{shown!r} is a pipe or device, which can be read only once.", "Give it as standard input, with -."
        )
    return "folder" if local.is_dir() else "file" if local.is_file() else None


def _of_one_format(listed: Sequence[str], folder: str, shown: str, format: str | None) -> list[str]:  # noqa: A002
    """Return the files in a folder that are not hidden and are named as ``format``, or by default as the same one."""
    kinds = {
        path: kind
        for path in listed
        if not any(map(is_hidden, names_below(path, folder))) and (kind := _kind_of(path)[0]) is not None
    }
    wanted = set(kinds.values()) if format is None else {_named_kind(format)[0]}
    if len(wanted) > 1:
        raise ConfigError(f"The folder {shown!r} has files of different formats.", "Name one of them with --format.")
    paths = [path for path, kind in kinds.items() if kind in wanted]
    if not paths:
        names = "csv, tsv, jsonl or parquet" if format is None else format
        raise CorpusError(
            f"The folder {shown!r} contains no file that is named as {names}.",
            "Check the folder, or name its files with a pattern and --format.",
        )
    return paths


def _folders_above(paths: Iterable[str]) -> set[str]:
    """Return all folders of this machine that contain the files, at any level, including those that links lead to."""
    direct = {folder for path in map(Path, paths) for folder in (path.absolute().parent, path.resolve().parent)}
    return {str(folder) for each in direct for folder in (each, *each.parents)}


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _kind_of(name: str) -> tuple[Format | None, Compression | None]:
    stem, _, last = name.lower().rpartition(".")
    for compression in _COMPRESSIONS:
        if last == compression:
            return _FORMATS.get(stem.rpartition(".")[2]), compression
    return _FORMATS.get(last), None


def _named_kind(format: str) -> tuple[Format, Compression | None]:  # noqa: A002
    kind, compression = _kind_of(f"x.{format}")
    if kind is None:
        raise ConfigError(f"The format {format!r} is unknown.", "Formats are csv, tsv, jsonl and parquet.")
    return kind, compression


_SELF_CONTAINED = re.compile(
    r"utf-8(-sig)?|ascii|cp\d+|iso8859-\d+|koi8-[rtu]|mac-[a-z0-9]+"  # cp932, cp949 and cp950 among them: no shifts
    r"|shift_jis|gbk|gb2312|gb18030|big5|euc_(jp|kr|jis_2004|jisx0213)"
)


T = TypeVar("T")

_GS = (r"[\w.-]+", frozenset({"scheme", "endpoint_override", "retry_limit_seconds"}))
_ABFS = (
    r"([\w.$-]+@)?[\w.-]+(:\d+)?",  # CONTAINER@ACCOUNT.dfs.core.windows.net, ACCOUNT@CONTAINER, HOST:PORT
    frozenset({"blob_storage_authority", "dfs_storage_authority", "enable_tls", "credential_kind"}),
)
_STORES = {
    "s3": (r"[\w.-]+", frozenset({"region", "scheme", "endpoint_override"})),
    **{"gs": _GS, "gcs": _GS, "abfs": _ABFS, "abfss": _ABFS},
}
"""By scheme: what may be between ``//`` and the path, and the options that may follow a question mark."""
_STORE_ADDRESS = re.compile(rf"({'|'.join(_STORES)})://([^/?]*)/*([^?]*)(?:\?(.*))?", re.DOTALL)
_GS_RETRY_SECONDS = 60
_NO_CREDENTIALS = (
    "Credentials come from the environment, a profile or the machine's identity; see docs/corpus.md for addresses."
)


class Address(NamedTuple):
    """An address in two parts.

    Attributes:
        store: of the bucket or container, with the address's options; :func:`file_system` opens it.
        key: the path in it, taken literally: nothing is decoded.
    """

    store: str
    key: str

    @property
    def path(self) -> str:
        """Return the key as a path within the store's file system. ConfigError if it names no bucket or container."""
        path = "/".join(part for part in (_opened(self.store)[1].strip("/"), self.key.rstrip("/")) if part)
        if not path:
            raise ConfigError("An address names an account but no container.", "Name at least a container in it.")
        return path


def parse_address(shown: str) -> Address | None:
    """Return the parts of an address that can be read from; None for anything else, such as a path.

    Raises ConfigError, without quoting it, for credentials, an unknown option, or no proper bucket.
    """
    found = _STORE_ADDRESS.fullmatch(shown)
    if found is None:
        return None
    scheme, authority, key, query = found.groups()
    pattern, known = _STORES[scheme]
    if re.fullmatch(pattern, authority, re.ASCII) is None:
        raise ConfigError(
            f"The text after {scheme}:// is more than a bucket or container (does it contain a key or password?).",
            _NO_CREDENTIALS,
        )
    options = [option.partition("=") for option in query.split("&")] if query else []
    if any(name not in known or "@" in unquote(value) for name, _, value in options):
        raise ConfigError(
            f"An address of {scheme}:// has an unsupported option (only {', '.join(sorted(known))} may be given).",
            _NO_CREDENTIALS,
        )
    return Address(f"{scheme}://{authority}" + (f"?{query}" if query else ""), key)


def file_system(store: str | None) -> Any:
    """Return the ``pyarrow.fs.FileSystem`` of a store, or of this machine (None). Each process opens its own."""
    return fs.LocalFileSystem() if store is None else _opened(store)[0]


@cache
def _opened(store: str) -> tuple[Any, str]:
    if store.startswith("g") and "retry_limit_seconds" not in store:  # pyarrow's own limit is a quarter of an hour
        store += f"{'&' if '?' in store else '?'}retry_limit_seconds={_GS_RETRY_SECONDS}"
    opened = asked(store.partition("?")[0], lambda: fs.FileSystem.from_uri(store))
    return opened[0], str(opened[1])


def asked(shown: str, question: Callable[[], T]) -> T:
    """Call ``question``, which uses a file system, and return its answer. If it fails, raise a CorpusError that quotes
    only ``shown``."""
    try:
        return question()
    except (OSError, ValueError, pa.ArrowException) as error:
        why = next((reason for pattern, reason in _REASONS if re.search(pattern, str(error))), "")
    if "://" in shown:
        cure = "Check the address, and this machine's credentials, region and endpoint (docs/corpus.md)."
    else:
        cure = "Check that everything in it may be read and has a name in UTF-8, or name its files with a pattern."
    raise CorpusError(f"{shown!r} cannot be read{why}.", cure)


_REASONS = (
    (
        r"ACCESS_DENIED|PERMISSION_DENIED|INVALID_ACCESS_KEY|SIGNATURE|[Cc]redential|access token|\b40[13]\b",
        ": access is denied",
    ),
    (r"NO_SUCH_BUCKET|NOT_FOUND|not found|\b404\b", ": there is no such bucket, container or folder"),
    (r"NETWORK_CONNECTION|[Cc]onnect|[Rr]esolve|[Tt]imeout|UNAVAILABLE", ": there is no connection to it"),
)
"""Meanings of a store's messages. Only these words are shown."""


Partitions = tuple[tuple[str, str | None], ...]
"""Columns in the names of folders, outermost first; None is null."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_LOGS = ("_delta_log", ".hoodie")
_METADATA, _METADATA_FILE = "metadata", ".metadata.json"  # Iceberg's
_ICEBERG = re.compile(rf"(?:\A|/){_METADATA}/[^/]*{re.escape(_METADATA_FILE)}\Z")


def below(store: str | None, folder: str, shown: str, *, recursive: bool = True) -> list[str]:
    """Return the paths of all files below a folder, sorted, with hidden ones; CorpusError if it cannot be listed."""

    def files() -> list[str]:  # a name may be no UTF-8, which is found out here
        entries = file_system(store).get_file_info(fs.FileSelector(folder, recursive=recursive))
        return [entry.path for entry in entries if entry.type == fs.FileType.File]

    return sorted(asked(shown, files), key=lambda path: path.split("/"))


def names_below(path: str, folder: str) -> list[str]:
    """Return the names that lead from a folder to a path in it."""
    return path.removeprefix(folder.rstrip("/") + "/").split("/")


def is_hidden(name: str) -> bool:
    """Return whether a name is hidden by convention, such as ``_SUCCESS`` and ``.part-0.crc``."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether names below a folder match a pattern, as in :func:`glob.glob` with ``recursive``.

    >>> matches(["a", "b", "c.csv"], ["**", "*.csv"]), matches(["a", ".c.csv"], ["*", "*.csv"])
    (True, False)
    """
    if not pattern:
        return not names
    if not names:
        return list(pattern) == ["**"]
    first, *rest = pattern
    seen = first.startswith(".") or not names[0].startswith(".")
    if first == "**":
        return matches(names, rest) or (seen and matches(names[1:], pattern))
    return seen and fnmatchcase(names[0], first) and matches(names[1:], rest)


def partitions(folders: Iterable[str], shown: str) -> Partitions:
    """Return the columns in the names of the folders above a file; ConfigError if a name with an equals sign is
    not ``COLUMN=VALUE``, or a column occurs twice.
    """
    found: dict[str, str | None] = {}
    for folder in folders:
        name, equals, value = folder.partition("=")
        if not equals:
            continue
        name, value = unquote(name), unquote(value)
        if not name or not value or name in found or "\ufffd" in name + value:
            raise ConfigError(
                f"The name of a folder in {shown!r} has an equals sign, and is not of the form COLUMN=VALUE with "
                "another column for each level.",
                "Rename the folder, or name the files one by one: then no column is read from folders.",
            )
        found[name] = None if value == _NULL else value
    return tuple(found.items())


def refuse_versions(store: str | None, folders: Iterable[str], listed: Iterable[str], shown: str) -> None:
    """Refuse (ConfigError) Parquet files of a table that has a log of its valid files.

    Args:
        folders: to search: those above the files.
    """
    logs = (path for path in listed if not set(_LOGS).isdisjoint(path.split("/")[:-1]) or _ICEBERG.search(path))
    if any(logs) or any(_has_log(store, folder) for folder in folders):
        raise ConfigError(
            f"{shown!r} belongs to a table of Delta Lake, Iceberg or Hudi, whose folders also contain rows that were "
            "deleted or changed.",
            "Export the table's present rows to Parquet files in a separate folder; see docs/corpus.md.",
        )


def _has_log(store: str | None, folder: str) -> bool:
    system = file_system(store)
    try:
        infos = system.get_file_info([f"{folder}/{name}" for name in (*_LOGS, _METADATA)])
        *logs, metadata = (info.type == fs.FileType.Directory for info in infos)
        if any(logs) or not metadata:
            return any(logs)
        entries = system.get_file_info(fs.FileSelector(f"{folder}/{_METADATA}"))
    except OSError:  # a folder above, which this user may not look into
        return False
    return any(entry.base_name.endswith(_METADATA_FILE) for entry in entries)
