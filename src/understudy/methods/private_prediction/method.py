"""Private prediction: texts decoded token by token from what a model predicts after many private ones."""

from __future__ import annotations

from typing import ClassVar

from understudy.methods.base import Method, Needs
from understudy.methods.private_prediction import generate as generating
from understudy.methods.private_prediction import release as releasing
from understudy.methods.private_prediction.plan import (
    NAME,
    ROWS,
    TOKENS,
    PrivatePredictionParameters,
    StoppingParameters,
    fitted,
    make_plan,
)
from understudy.methods.release_schema import Contents, Held
from understudy.privacy.events import ZCDPEvent
from understudy.release import Release

_INT32 = 2**31 - 1


class PrivatePrediction(Method, PrivatePredictionParameters):
    """Synthetic texts straight from a local model's next-token distribution, with differential privacy.

    >>> PrivatePrediction(clip="recenter").resolved.batch_size
    255
    """

    name: ClassVar[str] = NAME
    stopping_parameters: ClassVar[frozenset[str]] = frozenset(StoppingParameters.model_fields)
    needs: ClassVar[Needs] = Needs(private_model=True, holds_texts=True, rows=True)
    labels_in_parallel: ClassVar[bool] = True

    fitted = fitted
    plan = make_plan
    prepare = releasing.prepare
    release = releasing.release
    available = generating.available
    generate = generating.generate

    def contents(self, release: Release) -> Contents:
        """Describe the texts: label, batch, number within the batch, tokens, and how many of them are private."""
        count, labels = len(release.strings.get("texts", ())), release.schema.label_set.size
        numbers = {name: Held("int32", (count,), 0, _INT32) for name in ("batch", "number", "tokens", "private")}
        strings: dict[str, int | None] = {"texts": count}
        if release.schema.record_columns or release.schema.form:
            strings["no records"] = None
        arrays = {"label": Held("int32", (count,), 0, labels - 1), **numbers, "ended": Held("int32", (count,), 0, 1)}
        if columns := generating.columns_shown(release):
            arrays[ROWS] = Held("int32", (count, len(columns)), 0, max(column.size for column in columns) - 1)
        return Contents({TOKENS: ZCDPEvent.kind}, arrays, strings)
