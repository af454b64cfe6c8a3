"""Write files atomically, read lists with a line per entry, and set who may read and write, under any umask."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Literal

from understudy.base.errors import ConfigError, StorageError

PRIVATE_MODE = 0o600
SHARED_MODE = 0o644
"""The mode of files that may be shared: readable by all if the umask allows it, writable only by the owner."""

_PRIVATE_FOLDER, _SHARED_FOLDER, _OTHERS_WRITE = 0o700, 0o755, 0o022
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
_NO_FOLDER = {errno.EEXIST, errno.ENOTDIR}  # a file has the folder's path

AGAIN = "repeat the same command: it resumes, and nothing is charged twice."
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # two letters: C:/ is a drive


def require_local(path: str | os.PathLike[str]) -> None:
    """Check that a path is on this machine: ``s3://bucket/x`` would be a folder named ``s3:`` here.

    An address that may contain credentials is not quoted.
    """
    shown = require_path(path)
    if _ADDRESS.match(shown):
        named = "What was given" if re.search(r"[@?\s]", shown) else repr(shown)
        raise ConfigError(
            f"{named} is an address, not a path on this machine.",
            "Give a local path, and copy results there afterwards. Only tables can be read from addresses (s3://, "
            "gs://, abfs://), given as a string and not as a Path.",
        )


def require_path(path: str | os.PathLike[str]) -> str:
    """Return a path as it was typed. Raises ConfigError, without quoting it, for a value that can only be private
    text."""
    shown = os.fsdecode(path) if isinstance(path, (str, os.PathLike)) else ""
    parts = Path(shown).parts or ("",)
    wordy = len(parts[-1].split()) > _MOST_WORDS and not os.path.lexists(shown)
    if not shown or wordy or re.search(r"[\0\r\n]", shown) or max(len(os.fsencode(each)) for each in parts) > 255:
        raise ConfigError(
            "Something else was given where the path of a file or folder is expected.",
            "Give a path. Pass private texts to read_corpus, check and run, as a list of strings.",
        )
    return shown


_MOST_WORDS = 8
"""Characters of a file's name."""


def require_inside(root: Path, part: Path) -> None:
    """Check that no link leads out of ``root`` from a file or folder in it: a file from elsewhere would be read, and
    published, as one of the folder's. ``root`` itself may be a link.
    """
    home, found = Path(os.path.realpath(root), part.relative_to(root)), [part]
    if os.access(part, os.X_OK) and not os.access(part, os.R_OK):
        raise ConfigError(f"{part.name} can be entered but not listed.", "Remove the permission to enter it, too.")
    for here, folders, files in os.walk(part):  # for which a junction of Windows is a folder, not a link
        links = (name for name in files if os.path.islink(os.path.join(here, name)))  # noqa: PTH114, PTH118 - no error
        found += [Path(here, name) for name in (*folders, *links)]
    for each in found:
        if not Path(os.path.realpath(each)).is_relative_to(home):
            problem = f"{each.relative_to(root)} cannot be read: it is a link that leads out of its folder."
            raise ConfigError(problem, f"Put the file itself there. The whole folder {root.name} may be a link.")


@contextmanager
def atomic_file(path: Path, *, mode: int = SHARED_MODE) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` when the block ends without an exception; it is synced to disk first.

    ``mode`` is its permissions before the umask. ConfigError if ``path`` is an address.
    """
    require_local(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_file(path: Path, content: str | bytes, *, mode: int = SHARED_MODE) -> None:
    """Write a file as :func:`atomic_file` does; text in UTF-8."""
    with atomic_file(path, mode=mode) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)


class UnreadableText(Exception):
    """A text file that cannot be read. The message says why, without quoting the file."""


def cannot_read(file: str, error: Exception, cure: str) -> ConfigError:
    """Return the error for an unreadable public file, with the reason of an :class:`UnreadableText` or a parser."""
    why = error if isinstance(error, UnreadableText) else type(error).__name__
    return ConfigError(f"{file} cannot be read ({why}).", cure)


MOST_BYTES = 1 << 28
"""Largest public list, uncompressed."""
MOST_SETTINGS_BYTES = 1 << 24
"""Largest file of settings: YAML, or a JSON schema."""


def is_pipe_or_device(path: Path) -> bool:
    """Return whether a path is neither a file nor a folder: reading it could wait or never end."""
    return path.exists() and not path.is_file() and not path.is_dir()


def read_whole(
    path: Path, *, most: int = MOST_BYTES, opener: Callable[[Path, Literal["rb"]], IO[bytes]] = open
) -> bytes:
    """Return the bytes of a file that the user named, opened by ``opener``, such as ``gzip.open``; UnreadableText if it
    cannot be read, is a pipe or device, or has more than ``most`` bytes.
    """
    try:
        if is_pipe_or_device(path):
            raise UnreadableText("it is a pipe or device, not an ordinary file")
        with opener(path, "rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise UnreadableText("there is no such file") from None
    except IsADirectoryError:
        raise UnreadableText("it is a folder") from None
    except (OSError, ValueError) as error:
        raise UnreadableText(type(error).__name__) from None
    if len(data) > most:
        raise UnreadableText(f"it is longer than {most >> 20} MiB")
    return data


def read_lines(path: Path) -> list[str]:
    """Return the lines of a UTF-8 file; raises as :func:`read_whole` and :func:`lines_of` do."""
    return lines_of(read_whole(path.expanduser()))


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a UTF-8 text without their ends, which are LF or CRLF: no other character ends a line.

    Raises UnreadableText also for any other carriage return, which may have been meant as a line end.
    """
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise UnreadableText("it is not UTF-8") from None
    if "\r" in text:
        raise UnreadableText("a carriage return has no line feed after it; lines end at LF or CRLF")
    return text.removesuffix("\n").split("\n")


def private_folder(path: Path, *, tighten: bool = False) -> Path:
    """Make ``path`` with mode 0700, unless it exists (``tighten`` then gives it that mode, if it is this
    user's); ConfigError if it is an address."""
    require_local(path)
    shared_folder(path.parent)
    path.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)
    if tighten and os.name == "posix" and path.stat().st_uid == os.geteuid():
        path.chmod(_PRIVATE_FOLDER)
    return path


def shared_folder(path: Path) -> Path:
    """Make ``path``, and the folders above it, writable only by their owner, unless they exist."""
    for each in reversed([path, *path.parents]):
        if each == path or not each.exists():
            each.mkdir(mode=_SHARED_FOLDER, exist_ok=True)
    return path


def only_owner_writes(folder: Path) -> None:
    """Remove the permission to write into ``folder`` from all but its owner, if it is this user's."""
    if os.name != "posix":
        return
    found = folder.stat()
    if found.st_uid == os.geteuid() and found.st_mode & _OTHERS_WRITE:
        folder.chmod(found.st_mode & 0o7777 & ~_OTHERS_WRITE)


@contextmanager
def disk_faults(place: Path) -> Iterator[None]:
    """Turn the errors of a full, read-only or failing disk into a StorageError about ``place``, whatever code raised
    them.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK:
            raise
        raise storage_error(place, error) from None


def storage_error(place: Path, error: OSError) -> StorageError:
    """Return the error for something in ``place`` that cannot be written; nothing is lost."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(f"The disk is full: {place} cannot be written.", f"Free some space, then {AGAIN}")
    if error.errno in _NO_FOLDER:
        return StorageError(
            f"{place} cannot be written ({error.strerror}).", "Use another --output: no run began there."
        )
    return StorageError(f"{place} cannot be written ({error.strerror}).", f"Fix that, then {AGAIN}")


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable; does nothing if a folder cannot be opened (Windows)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_sha256(folder: Path, files: Iterable[Path]) -> str:
    """Return the SHA-256 over several files: over the sorted lines ``<sha256>  <path within folder>``."""
    lines = sorted(f"{file_sha256(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
