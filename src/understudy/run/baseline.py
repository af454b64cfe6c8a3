"""Write texts from the labels alone, with the prompts that private evolution starts with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from understudy.base.display import plural
from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters, public_file
from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.methods.shared.evolution.variation import TextAPI, keywords_of_labels, require_text
from understudy.privacy.noise import SystemNoise
from understudy.release import PublicSchema
from understudy.run.generating import prepare_writing
from understudy.run.job import FreeJob
from understudy.run.outputs import OutputFolder
from understudy.run.parts import is_in_english
from understudy.run.session import GENERATED, SILENT, Listener, open_session
from understudy.run.settings import run_config
from understudy.schema.labels import canonical, declared_labels
from understudy.text.records import SyntheticRecord
from understudy.text.writing import public_name


class BaselineParameters(Parameters):
    """Options of the baseline: labels and prompts."""

    labels: str | tuple[str | int | float | bool, ...] | None = None
    """The label set: a list, ``A,B,C``, or ``@FILE``."""
    min_words: int = 25
    """Smallest number of words that a prompt asks for."""
    max_words: int = 100
    """Largest number of words that a prompt asks for."""
    keywords: str | None = public_file(None)
    """A file of keywords, one per line, or YAML with a list for each label. Default: none, the label alone."""
    keywords_are_public: bool = False
    """Confirm that the keywords do not come from the private data."""


def write_baseline(options: Mapping[str, Any], *, listener: Listener = SILENT) -> list[SyntheticRecord]:
    """Write texts of each label with the prompts that private evolution starts with (:func:`understudy.baseline`)."""
    labels = options.get("labels")
    settings = {**options, "method": "aug-pe"}
    if labels is not None:
        settings |= {"label": "label", "labels": labels if isinstance(labels, str) else tuple(labels)}
    config = run_config(settings)
    names = () if labels is None else declared_labels(labels)
    foreign = labels is not None and not is_in_english((), (), config.label_set)
    job, size = FreeJob(config, foreign=foreign), config.label_set.size
    counts, place = job.wanted.counts(size), job.place
    if job.chat.llm == "none":
        raise ConfigError("A language model writes the baseline, but none is named.", "Name one (--llm).")
    if place.output and (OutputFolder(Path(place.output)).shareable / "statement.json").exists():
        raise ConfigError(
            "The output folder contains a privacy statement, which would not be true of a baseline's texts.",
            "Use another --output.",
        )
    with open_session(place, job.lasting.free({"zero-shot": True}), SystemNoise(), free=True) as session:
        writing = prepare_writing(session, job.method, job.texts, job.chat, listener)
        assert isinstance(job.method, EvolutionParameters), "aug-pe evolves"
        evolution = job.method.part(EvolutionParameters)
        template = writing.prompts.template
        keywords: Sequence[Sequence[str]] = [()] * size  # the template's keywords would outweigh the label
        if evolution.keywords is not None:
            keywords = keywords_of_labels(evolution, template.evolution, [canonical(name) for name in names])
        writer = writing.writer(names, listener)
        assert writer.chat is not None
        listener.say(f"Making {plural(sum(counts), 'text')} with {writer.chat.model_id}; no private text is read.")
        session.begin()
        session.clear_scratch()
        answers = TextAPI(writer, evolution, keywords).random(counts, stage=0)
        require_text(answers)
        origin = {"zero-shot": public_name(writer.chat.model_id), "prompts": template.sha256[:12]}
        records = [
            SyntheticRecord(text, int(label), {**origin, "prompt": prompt})
            for text, label, prompt in zip(answers.texts, answers.labels, answers.prompts, strict=True)
        ]
        if session.visible_folder is not None:
            schema = PublicSchema("text", None if labels is None else "label", tuple(names))
            (path,) = session.visible_folder.write_records(records, schema, provenance=config.provenance)
            listener.say(f"Wrote {plural(len(records), 'text')} to {path}.")
        if missing := sum(counts) - len(records):
            listener.say(f"The language model did not write {missing} of the texts.")
        session.store.mark(GENERATED)
    return records
