"""Folders of files, here or in an object store: what is listed below them, and what their names say.

Folders named ``COLUMN=VALUE`` (Hive's way) give their files a column each, whose values are strings. A table of Delta
Lake, Iceberg or Hudi is refused: its folder also holds files with rows that were deleted, or are there in two versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import unquote

from understudy.base.errors import ConfigError
from understudy.corpus.addresses import asked, file_system

Partitions = tuple[tuple[str, str | None], ...]
"""Columns that stand in the names of folders, outermost first; None is null."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
_LOGS = ("_delta_log", ".hoodie")
_METADATA, _METADATA_FILE = "metadata", ".metadata.json"  # Iceberg's


def below(store: str | None, folder: str, shown: str, *, recursive: bool = True) -> list[str]:
    """The paths of all files below a folder, sorted, hidden ones too.

    Raises:
        CorpusError: it cannot be listed.
    """
    from pyarrow.fs import FileSelector, FileType

    def files() -> list[str]:  # a name may be no UTF-8, which is found out here
        entries = file_system(store).get_file_info(FileSelector(folder, recursive=recursive))
        return [entry.path for entry in entries if entry.type == FileType.File]

    return sorted(asked(shown, files), key=lambda path: path.split("/"))


def names_below(path: str, folder: str) -> list[str]:
    """The names that lead from a folder to a path in it."""
    return path.removeprefix(folder.rstrip("/") + "/").split("/")


def is_hidden(name: str) -> bool:
    """Whether those who write folders mean a name to be left out, such as ``_SUCCESS`` and ``.part-0.crc``."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def matches(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether names below a folder are those of a pattern, as in :func:`glob.glob` with ``recursive``.

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
    """The columns that stand in the names of the folders above a file.

    Raises:
        ConfigError: a name with an equals sign is no ``COLUMN=VALUE``, or a column is there twice.
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
    """See that Parquet files are not those of a table that keeps a log of which of its files count.

    Args:
        store: where the files lie.
        folders: those to look into: above the files.
        listed: paths that are known already.
        shown: what the user typed.

    Raises:
        ConfigError: they are.
    """
    if any(map(_is_log, listed)) or any(_has_log(store, folder) for folder in folders):
        raise ConfigError(
            f"{shown!r} belongs to a table of Delta Lake, Iceberg or Hudi, whose folders also hold rows that were "
            "deleted or changed.",
            "Export the table's present rows to Parquet files in a folder of their own; see docs/corpus.md.",
        )


def _is_log(path: str) -> bool:
    *folders, name = path.split("/")
    return any(log in folders for log in _LOGS) or (folders[-1:] == [_METADATA] and name.endswith(_METADATA_FILE))


def _has_log(store: str | None, folder: str) -> bool:
    from pyarrow.fs import FileSelector, FileType

    system = file_system(store)
    try:
        infos = system.get_file_info([f"{folder}/{name}" for name in (*_LOGS, _METADATA)])
        *logs, metadata = (info.type == FileType.Directory for info in infos)
        if any(logs) or not metadata:
            return any(logs)
        entries = system.get_file_info(FileSelector(f"{folder}/{_METADATA}"))
    except OSError:  # a folder above, which this user may not look into
        return False
    return any(entry.base_name.endswith(_METADATA_FILE) for entry in entries)
