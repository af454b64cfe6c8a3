"""Prompts that make texts evolve: the field ``evolution`` of a prompt template, described in ``docs/prompts.md``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from understudy.base.parameters import OneOrSeveral, Parameters
from understudy.text.vocabulary.words import kept_phrases

ANY_LABEL = "*"
_CLAUSE = re.compile(r"\[([^\[\]]*)\]")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


Keywords = Annotated[
    Mapping[str, tuple[str, ...]],
    BeforeValidator(lambda words: {ANY_LABEL: words} if isinstance(words, list | tuple) else words),
]
"""Keywords by label; ``*`` for labels that are not named. A single list is for every label."""


class EvolutionExample(Parameters):
    """A public text that prompts show."""

    text: str
    """The text."""
    again: str = ""
    """The same in other words."""
    label: str = ""
    """A label that fits it."""
    keyword: str = ""
    """Its subject."""


class EvolutionPrompts(Parameters):
    """Prompts that make texts evolve."""

    system: str | None = None
    """The system message; None: the template's own."""
    random: OneOrSeveral = (
        "Write a short {document_type}[ ({label})][ about: {keyword}][. Write {style}][. Use about {words} words].",
    )
    """Asks for a new text. If there are several patterns, each call uses one at random."""
    fill: OneOrSeveral = (
        "Fill in the blanks (_) of this {document_type}[ ({label})][. Write {style}][. Use about {words} words]. "
        "Answer with the text only.\n\n{text}",
    )
    """Asks for a text whose words are partly blanks."""
    rephrase: OneOrSeveral = (
        "Write this {document_type}[ ({label})] again in other words[. Write {style}][. Use about {words} words]. "
        "Answer with the text only.\n\n{text}",
    )
    """Asks for a variation of a whole text."""
    styles: tuple[str, ...] = (
        "briefly",
        "in detail",
        "in plain words",
        "in a formal way",
        "in a casual way",
        "in a lively way",
        "in a matter-of-fact way",
        "with an example",
    )
    """Ways to write; each prompt names one. Public."""
    keywords: Keywords = Field(default_factory=dict)
    """Subjects; each prompt may name one. Public."""
    examples: tuple[EvolutionExample, ...] = ()
    """Shown as earlier turns."""

    def keywords_of(self, label: str) -> tuple[str, ...]:
        """Return the keywords of the longest name that is in ``label``, word for word; else those for every label."""
        named = [name for name in kept_phrases(label, list(self.keywords)) if name != ANY_LABEL]
        return self.keywords.get(max(named, key=len) if named else ANY_LABEL, ())


def fill_in(pattern: str, values: Mapping[str, str]) -> str:
    """Return ``pattern`` with its placeholders filled, without the parts in brackets that have an empty one.

    Unknown placeholders, and brackets without placeholders, are unchanged.

    >>> fill_in("Write a review[ of a {label}][ {style}].", {"label": "bar", "style": ""})
    'Write a review of a bar.'
    """

    def clause(match: re.Match[str]) -> str:
        names = [name for name in _PLACEHOLDER.findall(match[1]) if name in values]
        if not names:
            return match[0]
        return match[1] if all(values[name] for name in names) else ""

    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), _CLAUSE.sub(clause, pattern)).strip()
