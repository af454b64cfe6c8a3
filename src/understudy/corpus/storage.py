"""Read addresses of object stores (``s3://``, ``gs://``, ``abfs://``), and open their file systems.

pyarrow's file systems open them, with credentials from the usual places: the environment, configuration files,
the machine's identity. An address that contains credentials is refused, since configurations are stored and printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.lazy import fs, pa

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
_ADDRESS = re.compile(rf"({'|'.join(_STORES)})://([^/?]*)/*([^?]*)(?:\?(.*))?", re.DOTALL)
_GS_RETRY_SECONDS = 60
_NO_CREDENTIALS = (
    "Credentials come from the environment, a profile or the machine's identity; see docs/corpus.md for addresses."
)


class Address(NamedTuple):
    """The address of an object, as its store and its key.

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
    found = _ADDRESS.fullmatch(shown)
    if found is None:
        return None
    scheme, authority, key, query = found.groups()
    pattern, known = _STORES[scheme]
    if re.fullmatch(pattern, authority, re.ASCII) is None:
        raise ConfigError(
            f"What follows {scheme}:// is not only a bucket or container (is there a key or password in it?).",
            _NO_CREDENTIALS,
        )
    options = [option.partition("=") for option in query.split("&")] if query else []
    if any(name not in known or "@" in unquote(value) for name, _, value in options):
        raise ConfigError(
            f"An option in an address of {scheme}:// is not taken (only {', '.join(sorted(known))}).", _NO_CREDENTIALS
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
    """Call ``question`` on a file system and return its result. Errors become a CorpusError that quotes only
    ``shown``."""
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
    """Return the sorted paths of all files below a folder, including hidden ones; CorpusError if it cannot be
    listed."""

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
