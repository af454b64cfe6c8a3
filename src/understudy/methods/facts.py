"""The arguments of a method's plan and generation: nothing private, and nothing with access to private data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from understudy.models.causal import CausalModel
from understudy.models.types import Embedder
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.unit import Unit
from understudy.schema.columns import Column, row_characters
from understudy.schema.labels import LabelSet
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.writing import MOST_TRIES, Writer

_CHARACTERS_PER_TOKEN = 3
"""For names, numbers and dates."""


@dataclass(frozen=True)
class PublicFacts:
    """Everything that a plan may depend on; nothing in it is private.

    Args:
        expected_records: the corpus size that the user declares; for the forecast, and to sample what a guide embeds.
    """

    unit: Unit
    labels: LabelSet = field(default_factory=LabelSet)  # the declared label set
    expected_records: int | None = None
    label: str | None = None  # the column of the labels
    columns: tuple[Column, ...] = ()  # typed columns, if texts are not JSON records
    typed: tuple[Column, ...] = ()  # all typed columns of the table
    crossed: tuple[Column, ...] = ()  # the columns that form the label
    texts: tuple[str, ...] = ()  # the columns of the texts

    @property
    def written(self) -> tuple[str, ...]:
        """Return the names of a synthetic table's columns except its label."""
        return (*self.texts, *(each.name for each in self.typed))

    def rows(self, private_text_tokens: int) -> Facts:
        """Return facts on how many tokens the typed columns' values take. A private text is cut together with the
        values in front of it, so there is a warning if these take more than half of ``private_text_tokens``."""
        if not self.columns:
            return Facts()
        tokens = row_characters(self.columns) / _CHARACTERS_PER_TOKEN
        entry = Fact("row_tokens", round(tokens), "tokens of a row in front of its text (about)")
        warning = (
            f"A row takes about {tokens:.0f} of the {private_text_tokens} tokens to which it is cut with its text, so "
            "that little of each text would be read: raise --private-text-tokens, or declare fewer columns."
        )
        return Facts((entry,), (warning,) if tokens > private_text_tokens / 2 else ())


class Chooser(Protocol):
    """Chooses among texts by a Release's guide."""

    def choose(self, texts: Sequence[str], labels: Sequence[int], counts: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return, per label, the indices of ``counts[label]`` of its texts, or of all if there are fewer."""

    def agreement(self, texts: Sequence[str], labels: Sequence[int]) -> float:
        """Return the share of texts that match their intended label, of those whose label has records; 1 without
        any."""


@dataclass(frozen=True)
class GenerationTools:
    """What ``generate`` may use to turn a Release into texts.

    Args:
        embedder: the public embedder, if the method generates with one; the method checks that it is the Release's.
        chooser: if the Release has a guide that is to be used; the run itself chooses among the texts.
        progress: reports the current step, how much of it is done, and of how much.
    """

    writer: Writer  # the language model with its prompts
    embedder: Embedder | None = None
    model: CausalModel | None = None  # the Release's base model, as the method checks
    chooser: Chooser | None = None
    seed: int = 0  # steers sampling
    say: Callable[[str], None] = lambda _line: None  # takes a line for the user
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None


_PHRASES = 10


@dataclass(frozen=True)
class CallEstimate:
    """The expected number of calls of a language model (an upper limit if ``most``), and the length of a prompt in
    characters."""

    calls: int
    characters: int
    most: bool = False

    @classmethod
    def of_phrases(
        cls, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate, *, length: int = _PHRASES
    ) -> CallEstimate:
        """Estimate one prompt per record around ``length`` phrases, sampled and repaired as configured."""
        settings = template.settings
        phrases = ["keyphrase"] * min(length, settings.prompt_terms or length)
        messages = template.messages(phrases, examples=template.examples[: settings.examples_per_prompt])
        again = settings.repair + (MOST_TRIES if writing.json_schema else 0)
        calls = sum(counts) * ((writing.samples or 1) + again)
        return cls(calls, sum(len(message.content) for message in messages), most=again > 0)
