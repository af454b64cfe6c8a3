"""What a Release of private prediction holds."""

from __future__ import annotations

from understudy.methods.contents import Contents, Held
from understudy.methods.private_prediction.plan import TOKENS
from understudy.privacy.events import ZCDPEvent
from understudy.release import Release

_INT32 = 2**31 - 1


def contents(release: Release) -> Contents:
    """The texts, each with its label, batch and number within it, its tokens and how many of them are private."""
    count, labels = len(release.strings.get("texts", ())), max(1, len(release.schema.labels))
    numbers = {name: Held("int32", (count,), 0, _INT32) for name in ("batch", "number", "tokens", "private")}
    strings: dict[str, int | None] = {"texts": count}
    if release.schema.record_columns:
        strings["no records"] = None
    return Contents(
        {TOKENS: ZCDPEvent.kind},
        {
            "label": Held("int32", (count,), 0, labels - 1),
            **numbers,
            "ended": Held("int32", (count,), 0, 1),
        },
        strings,
    )
