"""Addresses of object stores (``s3://``, ``gs://``, ``abfs://``): which are taken, and how they are reached.

pyarrow's own file systems reach them, with credentials from where these look: the environment, configuration files,
the machine's identity. An address that holds credentials is refused, since configurations are stored and printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from understudy.base.errors import ConfigError, CorpusError

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
"""By scheme: what stands between ``//`` and the path, and the options that may follow a question mark."""
_ADDRESS = re.compile(rf"({'|'.join(_STORES)})://([^/?]*)/*([^?]*)(?:\?(.*))?", re.DOTALL)
_GS_RETRY_SECONDS = 60
_NO_CREDENTIALS = (
    "Credentials come from the environment, a profile or the machine's identity; see docs/corpus.md for addresses."
)


class Address(NamedTuple):
    """An address in two parts.

    Attributes:
        store: of the bucket or container, with the address's options; :func:`file_system` opens it.
        key: what lies in it, taken literally: nothing is decoded.
    """

    store: str
    key: str

    @property
    def path(self) -> str:
        """The key as a path within the store's file system.

        Raises:
            ConfigError: the address names no bucket or container.
            CorpusError: pyarrow cannot make a file system of it.
        """
        path = "/".join(part for part in (_opened(self.store)[1].strip("/"), self.key.rstrip("/")) if part)
        if not path:
            raise ConfigError(
                "An address names an account and no container.", "Name what is in it: a container, at least."
            )
        return path


def parse_address(shown: str) -> Address | None:
    """The parts of an address that can be read from; None for anything else, such as a path.

    Raises:
        ConfigError: it holds credentials, an unknown option, or no proper bucket. The address is not quoted.
    """
    found = _ADDRESS.fullmatch(shown)
    if found is None:
        return None
    scheme, authority, key, query = found.groups()
    pattern, known = _STORES[scheme]
    if re.fullmatch(pattern, authority, re.ASCII) is None:
        raise ConfigError(
            f"What follows {scheme}:// is no bucket or container alone (is there a key or password in it?).",
            _NO_CREDENTIALS,
        )
    options = [option.partition("=") for option in query.split("&")] if query else []
    if any(name not in known or "@" in unquote(value) for name, _, value in options):
        raise ConfigError(
            f"An option in an address of {scheme}:// is not taken (only {', '.join(sorted(known))}).", _NO_CREDENTIALS
        )
    return Address(f"{scheme}://{authority}" + (f"?{query}" if query else ""), key)


def file_system(store: str | None) -> Any:
    """The ``pyarrow.fs.FileSystem`` of a store, or of this machine (None). Each process opens its own.

    Raises:
        CorpusError: pyarrow cannot make a file system of the address.
    """
    from pyarrow.fs import LocalFileSystem

    return LocalFileSystem() if store is None else _opened(store)[0]


@cache
def _opened(store: str) -> tuple[Any, str]:
    """The file system of a store, and the path of the store in it."""
    from pyarrow.fs import FileSystem

    if store.startswith("g") and "retry_limit_seconds" not in store:  # pyarrow's own limit is a quarter of an hour
        store += f"{'&' if '?' in store else '?'}retry_limit_seconds={_GS_RETRY_SECONDS}"
    opened = asked(store.partition("?")[0], lambda: FileSystem.from_uri(store))
    return opened[0], str(opened[1])


def asked(shown: str, question: Callable[[], T]) -> T:
    """What a file system answers to ``question``.

    Raises:
        CorpusError: it fails. ``shown`` is quoted, and nothing that the store said.
    """
    import pyarrow as pa

    try:
        return question()
    except (OSError, ValueError, pa.ArrowException) as error:
        why = _why(str(error))
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
"""What a store's message is taken to mean. Only these words of ours are shown."""


def _why(said: str) -> str:
    return next((reason for pattern, reason in _REASONS if re.search(pattern, said)), "")
