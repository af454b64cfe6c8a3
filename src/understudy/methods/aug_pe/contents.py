"""What a Release of Aug-PE holds."""

from __future__ import annotations

from understudy.methods.aug_pe.parameters import AugPEParameters
from understudy.methods.aug_pe.plan import LABELS, VOCABULARY, keywords_name, votes_name
from understudy.methods.aug_pe.sizes import NOISY
from understudy.methods.contents import Contents, Held
from understudy.privacy.events import GaussianEvent
from understudy.release import Release

_INT32 = 2**31 - 1


def contents(parameters: AugPEParameters, release: Release) -> Contents:
    """The candidates of all rounds one behind the other: text, prompt, label, lineage, noisy votes, times chosen."""
    count, labels = len(release.strings.get("texts", ())), max(1, len(release.schema.labels))
    charges = [votes_name(number + 1) for number in range(parameters.rounds)]
    arrays = {
        "round": Held("int32", (count,), 0, parameters.rounds - 1),
        "label": Held("int32", (count,), 0, labels - 1),
        "parent": Held("int64", (count,), -1, count - 1),
        "votes": Held("float64", (count,)),
        "chosen": Held("int32", (count,), 0, _INT32),
        "survivors": Held("int64", ("survivors",), 0, count - 1),
        "failed": Held("int64", (parameters.rounds, labels), 0),
    }
    strings: dict[str, int | None] = {"texts": count, "prompts": count}
    if parameters.label_sizes == NOISY:
        charges.append(LABELS)
    if parameters.private_keywords:
        charges.append(VOCABULARY)
        arrays["counts"] = Held("float64", (len(release.terms),))
    else:
        strings |= {keywords_name(label): None for label in range(labels)}
    return Contents(
        dict.fromkeys(charges, GaussianEvent.kind),
        arrays,
        strings,
        terms=None if parameters.private_keywords else 0,
    )
