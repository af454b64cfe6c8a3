"""Sign a folder with Ed25519 over the hashes of all its files, to show who released it and when.

``manifest.json`` lists every file with its size and SHA-256, the signer, the time and the spending of the dataset.
``manifest.sig`` is the signature of its bytes, so ``openssl`` and ``sha256sum`` can check both.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.base.files import (
    PRIVATE_MODE,
    cannot_read,
    file_sha256,
    read_whole,
    require_inside,
    require_local,
    require_path,
    write_file,
)
from understudy.base.untrusted import MOST_BYTES, parse_json, read_form

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
PASSPHRASE = "UNDERSTUDY_KEY_PASSPHRASE"  # the variable's name
"""The environment variable with the passphrase of a private key, if it has one."""
_FORM = {"format": "understudy-manifest", "format_version": 1}
_MOST_KEY_BYTES = 1 << 16

_Hex = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Numbers = Annotated[dict[str, Annotated[str, Field(max_length=700)]], Field(max_length=2)]
_Short = Annotated[str, Field(max_length=1000)]


@dataclass(frozen=True)
class SignedFile:
    """A file in the state in which it was signed."""

    size: Annotated[int, Field(ge=0)]
    sha256: _Hex


@dataclass(frozen=True)
class Manifest:
    """The signed list of files, with the signer and the spending.

    Args:
        signed_at: ISO 8601, in UTC, by the signer's clock.
        version: of understudy.
        responsible: who answers for the files, in the signer's words; may be empty.
        run: the id of the run that was charged, and ``ledger`` that of the ledger; empty if nothing was charged.
        spent: by all runs of the dataset when this was signed, as :meth:`Budget.to_json` writes it, and ``cap`` its cap
            at that time; None if the ledger was missing.
        public_key: the 32 bytes of the signer's key, in hexadecimal.
        files: by their paths in the folder.
    """

    signed_at: _Short
    version: _Short
    responsible: _Short
    dataset: _Short
    method: _Short
    run: _Short
    ledger: _Short
    spent: _Numbers | None
    cap: _Numbers | None
    public_key: _Hex
    files: Mapping[str, SignedFile] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the file. The same values give the same bytes."""
        return json.dumps({**_FORM, **asdict(self)}, indent=1, sort_keys=True).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Read what :meth:`to_bytes` made; ValueError for anything else, as the bytes are not trusted."""
        found = read_form(cls, parse_json(data))
        if found.to_bytes() != data:
            raise ValueError("it is not in the form that understudy writes")
        return found

    @property
    def fingerprint(self) -> str:
        return fingerprint(bytes.fromhex(self.public_key))


def fingerprint(public: bytes) -> str:
    """Return the first half of a public key's SHA-256, in groups for people to compare."""
    digits = hashlib.sha256(public).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, 32, 4))


@dataclass(frozen=True, repr=False)
class Signer:
    """A private key that signs folders."""

    _key: Ed25519PrivateKey

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Signer:
        """Read a private key in PEM; ConfigError if it is not an Ed25519 key, or its passphrase is wrong."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        def read(data: bytes) -> object:
            return load_pem_private_key(data, (_passphrase() or None) if b"ENCRYPTED" in data else None)

        cure = f"Give a key of `understudy keys create`, and its passphrase, if it has one, in {PASSPHRASE}."
        return cls(_load(path, read, Ed25519PrivateKey, "private", cure))

    @cached_property
    def public(self) -> bytes:
        """Return the public key, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, folder: Path, manifest: Manifest) -> Manifest:
        """Write the manifest of all files in ``folder``, and its signature. Returns the manifest with the files."""
        for name in (SIGNATURE, MANIFEST):  # so that an old signature never accompanies a new manifest
            (folder / name).unlink(missing_ok=True)
        try:
            found = dict(_files_in(folder))
            if not all(path.is_file() for path in found.values()):
                raise ValueError("it is a pipe or device")
            files = {name: SignedFile(path.stat().st_size, file_sha256(path)) for name, path in found.items()}
            signed = replace(manifest, files=files)
            data = signed.to_bytes()
            Manifest.from_bytes(data)
        except ValueError:
            problem = (
                "These files cannot be signed: one is not a regular file, a name is not text, or there are too many."
            )
            raise ConfigError(problem, "Rename or remove files there that understudy did not write.") from None
        for name, content in ((MANIFEST, data), (SIGNATURE, self._key.sign(data))):
            write_file(folder / name, content)
        return signed


def create_keys(path: str | PathLike[str]) -> tuple[Path, bytes]:
    """Write a new private key, which only its owner may read, and ``PATH.pub`` in the same folder.

    The private key is PKCS8 in PEM, encrypted if the environment variable PASSPHRASE is set.

    Returns the path of the public key, and its 32 bytes. ConfigError if either file exists already.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    require_local(path)
    private, public = Path(path), Path(f"{os.fspath(path)}.pub")
    if taken := [file.name for file in (private, public) if os.path.lexists(file)]:
        raise ConfigError(f"The file {taken[0]} exists already.", "Choose another name: keys are never overwritten.")
    key, passphrase = Ed25519PrivateKey.generate(), _passphrase()
    locked = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    pem, made = serialization.Encoding.PEM, key.public_key()
    try:
        write_file(private, key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked), mode=PRIVATE_MODE)
        write_file(public, made.public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    except OSError as error:
        raise ConfigError(
            f"{private.name} cannot be written ({error.strerror}).", "Name another folder for the keys."
        ) from None
    return public, made.public_bytes_raw()


def read_public_key(path: str | PathLike[str]) -> bytes:
    """Return the 32 bytes of a public key in PEM; ConfigError if it is not an Ed25519 key, or a private one."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    cure = "Give the signer's public key, which `understudy keys create` wrote as FILE.pub."
    key: Ed25519PublicKey = _load(path, load_pem_public_key, Ed25519PublicKey, "public", cure)
    return key.public_bytes_raw()


def _passphrase() -> bytes:
    return os.environ.get(PASSPHRASE, "").encode()


def _load(path: str | PathLike[str], read: Callable[[bytes], object], kind: Any, what: str, cure: str) -> Any:
    file = Path(require_path(path))
    try:
        key = read(read_whole(file, most=_MOST_KEY_BYTES))
        if not isinstance(key, kind):
            raise TypeError
    except Exception as error:  # files of other kinds fail in many ways
        raise cannot_read(f"The {what} key {file.name}", error, cure) from None
    return key


def _files_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield every file of a folder except the manifest and its signature, with its path in it; pipes count as files.

    Raises ConfigError if a link leads out of the folder.
    """
    require_inside(folder, folder)
    for here, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(here, name) for name in sorted(names)):
            if (name := path.relative_to(folder).as_posix()) not in (MANIFEST, SIGNATURE):
                yield name, path


def is_signed(folder: Path) -> bool:
    """Return whether the folder contains a manifest or a signature."""
    return any(os.path.lexists(folder / name) for name in (MANIFEST, SIGNATURE))


def read_signed(folder: Path) -> Manifest:
    """Return the manifest of a signed folder if the signature is by the key that it names.

    The owner of the key is not checked, nor whether the files are those that were signed. Raises ValueError or OSError
    if the signature is by a different key, or either file is missing or damaged.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not all((folder / name).is_file() for name in (MANIFEST, SIGNATURE)):
        raise ValueError("one of its two files is missing")
    with (folder / MANIFEST).open("rb") as file, (folder / SIGNATURE).open("rb") as other:
        data, signature = file.read(MOST_BYTES + 1), other.read(_MOST_KEY_BYTES)
    manifest = Manifest.from_bytes(data)
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(manifest.public_key)).verify(signature, data)
    except InvalidSignature:
        raise ValueError("the signature does not match") from None
    return manifest


def changes_since(folder: Path, manifest: Manifest) -> dict[str, str]:
    """Return the names of files that differ from the signed state of ``folder``, each with what is wrong in words:
    changed, missing, or not signed."""
    there, found = dict(_files_in(folder)), {}
    for name, path in there.items():
        signed = manifest.files.get(name)
        if signed is None:
            found[name] = "is not covered by the signature"
        elif not path.is_file() or path.stat().st_size != signed.size or file_sha256(path) != signed.sha256:
            found[name] = "is not the file that was signed"
    return found | dict.fromkeys(sorted(manifest.files.keys() - there), "was signed and is missing")
