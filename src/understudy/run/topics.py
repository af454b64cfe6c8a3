"""The verb ``topics``: find what a private table is about. A Release of the method, and the uses of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.base.lazy import library
from understudy.corpus import Corpus
from understudy.methods.additions.topics import found
from understudy.methods.additions.topics.found import Topic, topics_of
from understudy.methods.additions.topics.plan import NAME
from understudy.methods.registry import method_of
from understudy.models import catalog
from understudy.models.collect import collect
from understudy.models.types import ChatModel, ChatRequest, Completion, Embedder, Message
from understudy.models.vectors import ContentsEmbedder
from understudy.release import Release
from understudy.release.statement import NOT_PRIVATE
from understudy.run import pipeline
from understudy.run.generating import load_chat
from understudy.run.outputs import OutputFolder
from understudy.run.parts import Chat
from understudy.run.session import SILENT, Listener
from understudy.run.settings import RunConfig
from understudy.text.vocabulary.words import kept_phrases
from understudy.text.writing import tidy


@dataclass(frozen=True, repr=False)
class FoundTopics:
    """The topics of a Release.

    Args:
        release: the Release, with its privacy statement.
        embedder: for assigning texts, as in ``--embedder``.
        folder: the output folder; None without one.
        titles: of the topics, by their numbers, if a language model wrote some.
        trust_endpoint: whether an embedder may send the assigned texts away from this machine.

    Raises ReleaseError if the Release is of another method, or has a parameter that no longer exists.
    """

    release: Release
    embedder: str = "builtin"
    folder: OutputFolder | None = None
    trust_endpoint: bool = False
    titles: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.release, Release):
            raise ConfigError(
                "A Release of topics is expected, not its path.", 'Load it: us.load_release("FOLDER or FILE").'
            )
        method_of(self.release)
        found.held_of(self.release)

    def __repr__(self) -> str:
        return f"<{len(self.topics)} topics, {self._promise}>"

    @cached_property
    def topics(self) -> tuple[Topic, ...]:
        """Return the topics, the largest first: their names, terms, and noisy sizes with intervals."""
        found = topics_of(self.release)
        titles = self.titles or [""] * len(found)
        return tuple(replace(each, title=title) for each, title in zip(found, titles, strict=True))

    def assign(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of the topic that each text is nearest to, ``Int64[n]``; -1 for a text without a vector.

        Free: a function of the text and of released centres. The numbers of private texts are as private as the texts.

        Raises ReleaseError if the topics were found with a different embedder, ModelError if the embedder is not on
        this machine, or sends texts away from it and is not trusted.
        """
        if isinstance(texts, str):
            raise ConfigError("A single text was given, but a list is expected.", "Give a list of texts.")
        if any(not isinstance(text, str) for text in texts):
            raise ConfigError("One of the texts is not a string.", "Give a list of strings.")
        return found.assign(self.release, self._loaded, list(texts), trust_endpoint=self.trust_endpoint)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return ``Float32[n, d]``: vectors of public texts, of length 1, by the embedder that found the topics."""
        return np.asarray(self._loaded.embed(list(texts)), dtype=np.float32)

    @cached_property
    def _loaded(self) -> Embedder:
        loaded, form = catalog.load_embedder(self.embedder), self.release.schema.form
        return ContentsEmbedder(loaded, form) if form else loaded

    @property
    def _promise(self) -> str:
        return str(self.release.statement.budget) if self.release.statement.private else NOT_PRIVATE

    def to_json(self) -> list[dict[str, Any]]:
        """Return one entry per topic, the largest first."""
        return [
            {
                "topic": each.number,
                "name": each.name,
                "terms": list(each.terms),
                "size": round(each.size, 1),
                "low": round(each.low, 1),
                "high": round(each.high, 1),
                "clear": each.clear,
                **({"title": each.title} if self.titles else {}),
            }
            for each in self.topics
        ]

    def to_pandas(self) -> Any:
        """Return the topics as a ``pandas.DataFrame``, one per row: ``topic``, ``name``, ``terms`` (a list), ``size``,
        ``low``, ``high``, ``clear``."""
        return library("pandas").DataFrame(self.to_json())


def find_topics(config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT) -> FoundTopics:
    """Release the topics of a private table. The same configuration and output folder resume."""
    if config.method != NAME:
        raise ConfigError(f"The method {config.method} does not find topics.", "Leave the method out.")
    if config.label is not None or config.labels is not None or config.labels_from_data:
        raise ConfigError(
            "Topics are found only in tables without labels.", "Leave out --label, --labels and --labels-from-data."
        )
    asked = config.llm if "llm" in config.model_fields_set and config.llm != "none" else None
    config.require_ledger()
    chat = asked and load_chat(config.part(Chat, asks=True, trained=False, in_a_row=1), listener)
    made = pipeline.release(config, corpus=corpus, listener=listener)
    found = FoundTopics(made.release, config.embedder, made.folder, config.trust_endpoint)
    if not chat:
        return found
    listener.say(f"Titles are written by {asked}, which sees only the topics' released terms.")
    return replace(found, titles=titles_of(found.topics, chat, found.embed, listener))


def titles_of(
    topics: Sequence[Topic],
    chat: ChatModel,
    embed: Callable[[Sequence[str]], NDArray[np.float32]],
    listener: Listener = SILENT,
) -> tuple[str, ...]:
    """Return the model's title, from the terms alone, for each topic that is clear of the noise; "" if it gives no
    title, or one that does not fit the topic. Tell the listener how many were refused, and why.

    A title fits its topic if it contains one of the topic's terms or is near one (cosine above _LIKE), and is nearer to
    its terms, on average, than to those of any other clear topic.
    """
    shown = [each for each in topics if each.clear]
    answers = _asked_of(chat, shown)
    titles = {each.number: _title(answer) for each, answer in zip(shown, answers, strict=True)}
    refused = Counter(_NO_TITLE if answer.text.strip() else _NO_ANSWER for answer in answers if not _title(answer))
    if any(titles.values()):
        own = np.repeat(np.arange(len(shown)), [len(each.terms) for each in shown])
        cosines = embed(list(titles.values())) @ embed([term for each in shown for term in each.terms]).T
        fits = cosines @ np.eye(len(shown))[own] / np.bincount(own)
        for place, each in enumerate(shown):
            title = titles[each.number]
            near = cosines[place, own == place].max() > _LIKE or kept_phrases(title, each.terms)
            if title and (not near or fits[place].argmax() != place):
                titles[each.number] = ""
                refused[_OF_ANOTHER if near else _NOT_NEAR] += 1
    if refused:
        why = ", ".join(f"{count} {reason}" for reason, count in refused.items())
        listener.say(f"{refused.total()} of {len(shown)} titles are refused ({why}): these topics keep their names.")
    elif not shown:
        listener.say("No topic is clear of the noise, so none gets a title.")
    return tuple(titles.get(each.number, "") for each in topics)


def _asked_of(chat: ChatModel, topics: Sequence[Topic]) -> list[Completion]:
    terms = [", ".join(term[:_LONGEST_TERM] for term in each.terms) for each in topics]
    said = [Message("user", _ASKED.format(each)) for each in terms]
    return collect(chat, [ChatRequest((each,), max_tokens=_LONGEST, temperature=0.0) for each in said])


def _title(answer: Completion) -> str:
    """Return the title without quotes and lead-in; "" if it was cut or is not a title."""
    lines = tidy(answer).splitlines()
    text = _LEAD.sub("", " ".join(lines[:1]).strip(_AROUND)).strip(_AROUND)
    cut = answer.finish_reason == "length" and len(answer.text.strip().splitlines()) == 1
    return "" if cut or '"' in text or len(text.split()) not in _WORDS or len(text) > _MOST else text


_NO_ANSWER, _NO_TITLE, _NOT_NEAR = "not answered", "not a title of two to five words", "not near the topic's terms"
_OF_ANOTHER = "nearer to another topic's terms"
_ASKED = (
    "These words tell one subject of a collection of texts from its other subjects: {}. What is the subject? Answer "
    "with two to five words and nothing else."
)
_LEAD = re.compile(r"(the )?(subject|topic|title|answer)( is\b|\W*:)", re.IGNORECASE)
_AROUND = " \t\"'\u201c\u201d\u2018\u2019`.*#:"
_LONGEST, _MOST, _WORDS, _LONGEST_TERM = 24, 60, range(2, 6), 80  # tokens, characters, words, characters
_LIKE = 0.5
"""Smallest cosine of a title and a term that it paraphrases, by the built-in embedder."""
