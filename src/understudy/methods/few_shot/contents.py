"""What a Release of few-shot holds."""

from __future__ import annotations

from understudy.methods.contents import Contents, Held
from understudy.methods.few_shot.parameters import FewShotParameters
from understudy.methods.few_shot.plan import SCHEMA, TOKENS
from understudy.privacy.events import SubsampledGaussianEvent, SubsampledPureEvent
from understudy.release import Release


def contents(parameters: FewShotParameters, release: Release) -> Contents:
    """The exemplars, each with its label, its noisy tokens, whether it ended by itself and whether prompts show it."""
    count, labels = len(release.strings.get("exemplars", ())), max(1, len(release.schema.labels))
    strings: dict[str, int | None] = {"exemplars": count}
    if release.schema.record_columns and SCHEMA in release.strings:
        strings[SCHEMA] = 1
    return Contents(
        {TOKENS: (SubsampledGaussianEvent if parameters.noise == "gaussian" else SubsampledPureEvent).kind},
        {
            "label": Held("int32", (count,), 0, labels - 1),
            "noisy_tokens": Held("int32", (count,), 0, parameters.tokens),
            "finished": Held("bool", (count,)),
            "usable": Held("bool", (count,)),
        },
        strings,
    )
