"""Where pulled models live on this machine, and how a folder of files proves it is whole.

A pulled model is one folder with a ``manifest.json`` that lists every file's size and SHA-256. It appears
under its name by one rename, so it is either absent or whole.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


def models_dir() -> Path:
    """``$UNDERSTUDY_CACHE/models``, else ``models`` in the user's cache folder for understudy."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("UNDERSTUDY_CACHE") or user_cache_dir("understudy")) / "models"


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(folder: Path, files: Iterable[Path]) -> str:
    """SHA-256 over several files: over the sorted lines ``<sha256>  <path within folder>``."""
    lines = sorted(f"{sha256_file(file)}  {file.relative_to(folder).as_posix()}\n" for file in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_manifest(folder: Path, *, about: Mapping[str, Any]) -> None:
    """Write the manifest of all files in ``folder``; ``about`` says what the model is and where it came from."""
    files = {
        path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": sha256_file(path)}
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    text = json.dumps({**about, "files": files}, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The folder's manifest, or None where there is none that can be read."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and isinstance(manifest.get("files"), dict) else None


def damaged_files(folder: Path, manifest: Mapping[str, Any], *, hashes: bool) -> list[str]:
    """Files that are missing or differ from the manifest: in size, and with ``hashes`` in content."""
    return [
        name
        for name, entry in manifest["files"].items()
        if not (folder / name).is_file()
        or (folder / name).stat().st_size != entry["size"]
        or (hashes and sha256_file(folder / name) != entry["sha256"])
    ]
