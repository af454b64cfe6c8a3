"""Aug-PE, after the privacy boundary: texts out of the evolved population. Free, any number of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from understudy.methods.aug_pe.plan import AugPEParameters, keywords_name
from understudy.methods.public import GenerationTools
from understudy.methods.shared.evolution.harvest import Survivor, harvest
from understudy.methods.shared.evolution.variation import TextAPI
from understudy.release import Release
from understudy.text.writing.records import SyntheticRecord


def generate(
    parameters: AugPEParameters, release: Release, counts: Sequence[int], *, tools: GenerationTools
) -> Iterator[SyntheticRecord]:
    """The evolved texts, and variations of them where more are asked for (none without a language model)."""
    keywords = [keywords_of(release, label) for label in range(len(counts))]
    api = None if tools.writer.chat is None else TextAPI(tools.writer, parameters, keywords)
    return harvest(survivors(release), counts, kind=parameters.harvest, api=api)


def keywords_of(release: Release, label: int) -> Sequence[str]:
    """What texts of a label were asked to be about: the privatised vocabulary, or public keywords."""
    return release.terms or release.strings[keywords_name(label)]


def survivors(release: Release) -> list[Survivor]:
    """The texts that the last round chose, each once, best first within a label."""
    texts, prompts = release.strings.get("texts", ()), release.strings.get("prompts", ())
    labels, parents, rounds = (release.arrays[name] for name in ("label", "parent", "round"))
    return [
        Survivor(
            texts[number],
            int(labels[number]),
            number,
            {
                "number": number,
                "parent": int(parents[number]),
                "round": int(rounds[number]) + 1,
                "prompt": prompts[number],
            },
        )
        for number in dict.fromkeys(release.arrays["survivors"].tolist())
    ]
