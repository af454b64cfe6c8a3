"""The studio's own files, by name: nothing else is served."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from starlette.exceptions import HTTPException

_KINDS = {"studio.css": "text/css", "studio.js": "text/javascript", "icon.svg": "image/svg+xml"}


@lru_cache
def static_file(name: str) -> tuple[str, str]:
    """The text and the media type of one of them; HTTPException 404 for any other name."""
    if name not in _KINDS:
        raise HTTPException(404)
    return resources.files("understudy.studio").joinpath("static", name).read_text("utf-8"), _KINDS[name]
