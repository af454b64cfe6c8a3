"""The prompting loop: seeds in, texts out, the best of several answers kept.

Phrases are released values and examples are public, so nothing here touches private data.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import PurePath
from typing import Any

from understudy.base.errors import ModelError
from understudy.models.collect import collect
from understudy.models.types import ChatModel, ChatRequest, Completion, Message
from understudy.text.gate import ENGLISH, OPEN, Earlier, Fault, Gate, Reading
from understudy.text.prompts.template import DEFAULT_TEMPERATURE, PromptTemplate, WritingParameters, load_template
from understudy.text.prompts.writer import TEMPERATURE, Brief, choices, weighed
from understudy.text.records import Row, Rows, Seed, SyntheticRecord, Value
from understudy.text.vocabulary.words import kept_phrases, missing_phrases, split_words

_SEPARATOR = ", "
_MANY = 10_000  # texts
MOST_TRIES = 4  # for a text that lacks its required form
_HOPELESS, _FEW = 2 / 3, 4  # if this share of at least so many texts fail, nothing is asked again
_USELESS = 0.85  # if this share of the first answers fail, no others are asked for


@dataclass(frozen=True)
class _Texts:
    """The texts of some seeds while they are written: for each its row, the number of answers that were requested, the
    best answer so far, and the request for it with its phrases."""

    rows: Sequence[Row | None]
    tries: list[int]
    best: list[Completion] = field(default_factory=list)
    requests: list[ChatRequest] = field(default_factory=list)
    asked: list[Sequence[str]] = field(default_factory=list)


_Asked = tuple[Sequence[str], ChatRequest]  # phrases, and the request for a text around them
_Answered = tuple[Sequence[str], ChatRequest, Completion]


@dataclass(frozen=True)
class Writer:
    """Writes texts with a chat model. Without one, a text is the phrases of its seed joined by ", "."""

    chat: ChatModel | None
    template: PromptTemplate
    parameters: WritingParameters
    labels: Sequence[str] = ()  # the label set as strings, for prompts that name the label
    seed: int = 0  # a different seed gets different answers
    progress: Callable[[int, int], None] = lambda _done, _asked: None  # number of texts so far, and of all
    rows: Rows | None = None  # of typed columns, one for each text, shown in its prompt
    form: Form | None = None  # the required form; None: any
    seeds_trial: int = 16  # if nearly all of them fail, the rest is not asked for
    seeds_first: int = 128  # if many texts fail, it ends the writing
    seeds_at_once: int = 1024
    trained: bool = False  # the chat model is the built-in writer, asked in the form of its training
    gate: Gate = OPEN  # reads the texts
    tries: int = 2  # times to ask again for a text that fails

    @property
    def calls_per_seed(self) -> int:
        """Return the language model calls for one seed, without repairs."""
        return 0 if self.chat is None else self.parameters.answers(trained=self.trained)

    def write(self, seeds: Sequence[Seed]) -> Iterator[SyntheticRecord]:
        """Yield one record per seed, in order; without a text if the model gave none. Raises NoText if the model wrote
        no text at all."""
        if self.chat is None:
            for place, seed in enumerate(seeds, 1):
                row, phrases = self._row(seed), list(seed.phrases)
                columns = None if row is None else row.values
                if place % _MANY == 0:  # fewer take no time
                    self.progress(place, len(seeds))
                yield SyntheticRecord(_SEPARATOR.join(phrases), seed.label, {"phrases": phrases}, columns)
            return
        asker = Asker(self.chat, self._count_texts, expected=len(seeds) * self.calls_per_seed)
        earlier = Earlier()
        starts = [0, *range(self.seeds_first, len(seeds), self.seeds_at_once)]
        for start, end in pairwise([*starts, len(seeds)]):
            records = self._write(asker, seeds[start:end], start, earlier)
            yield from records
            if end < len(seeds):  # a model that is to blame is not asked for the rest
                self.gate.require(Reading.of([each.provenance.get("fault") for each in records if each.text]))
        if asker.problem:
            raise _no_text(asker.problem)

    @property
    def temperature(self) -> float:
        """Return the sampling temperature, if not given that of the model."""
        given = self.parameters.llm_temperature
        return given if given is not None else TEMPERATURE if self.trained else DEFAULT_TEMPERATURE

    def instead_of_phrases(self, label: int) -> tuple[str, ...]:
        """Return the phrases for a label without a sure term: the label's name, or the document type."""
        name = self.labels[label].replace("_", " ") if self.labels else ""
        return (name or self.template.document_type,)

    def _count_texts(self, done: int, asked: int) -> None:
        """Report progress in texts, from that in answers: each text is the best of several."""
        each = self.calls_per_seed
        if done % each == 0:
            self.progress(done // each, asked // each)

    def _write(self, asker: Asker, seeds: Sequence[Seed], first: int, earlier: Earlier) -> list[SyntheticRecord]:
        rows = [self._row(seed) for seed in seeds]
        samples = self.calls_per_seed
        tried = [
            self._requests(seed, first + place, row) for place, (seed, row) in enumerate(zip(seeds, rows, strict=True))
        ]
        texts = _Texts(rows, [samples] * len(seeds))
        asked, requests, best, tries = texts.asked, texts.requests, texts.best, texts.tries
        trial = (not first and self.seeds_trial) or len(seeds)
        for end in sorted({min(trial, len(seeds)), len(seeds)}):
            some = range(len(best), end)
            answers = iter(asker.ask([request for index in some for _, request in tried[index]]))
            for index in some:
                own = [(*one, self._in_form(next(answers), rows[index])) for one in tried[index]]
                phrases, request, answer = self._best(own, rows[index])
                asked.append(phrases)
                requests.append(request)
                best.append(answer)
            if end < len(seeds):
                if self.form is not None and all(answer.blank for answer in best):
                    self._fill(asker, texts)
                self.end_if_useless(asker, best, asked, requests)
        self._fill(asker, texts)
        for _ in range(self.template.settings.repair):
            missing = {index: missing_phrases(best[index].text, asked[index]) for index in range(len(seeds))}
            repairs = {
                index: self._request(self.template.repair_messages(best[index].text, lacking, asked[index]))
                for index, lacking in missing.items()
                if lacking and not best[index].blank
            }
            self._replace(asker, texts, repairs)
        faults = self._ask_again(asker, texts, earlier)
        records = []
        for index, (seed, phrases, answer, row) in enumerate(zip(seeds, asked, best, rows, strict=True)):
            provenance = {
                "phrases": list(phrases),
                "kept": list(kept_phrases(answer.text, phrases)),
                "prompt": "writer" if self.trained else self.template.sha256[:12],
                "model": public_name(asker.chat.model_id),
                "finish": answer.finish_reason,
                **({} if answer.sense is None else {"sense": round(1 / (1 + math.exp(-answer.sense)), 2)}),
                **({} if self.form is None and tries[index] == samples else {"asked": tries[index]}),
                **({"fault": faults[index]} if index in faults else {}),
            }
            columns = None if row is None else row.values
            records.append(SyntheticRecord(answer.text.strip(), seed.label, provenance, columns))
        return records

    def _requests(self, seed: Seed, number: int, row: Row | None) -> list[_Asked]:
        """Return a seed's requests, each with the phrases that it asks for."""
        if self.trained:
            asked = choices(seed.phrases, self.calls_per_seed)
        else:
            asked = [seed.phrases[: self.template.settings.prompt_terms]] * self.calls_per_seed
        return [(phrases, self._request(self._messages(phrases, seed, number, row), phrases)) for phrases in asked]

    def _fill(self, asker: Asker, texts: _Texts) -> None:
        """Ask again for blank answers."""
        for _ in range(1 if self.form is None else self.form.tries):
            blank = [place for place, each in enumerate(texts.best) if each.blank and each.finish_reason != "failed"]
            self._repeat(asker, texts, blank)

    def _best(self, answered: Sequence[_Answered], row: Row | None) -> _Answered:
        return max(answered, key=lambda one: self._rank(one[0], one[1].messages, row, one[2]))

    def _repeat(self, asker: Asker, texts: _Texts, places: Sequence[int]) -> None:
        """Ask for some texts once more, and keep whichever answer is better."""
        for index in places:
            texts.tries[index] += 1
        self._replace(asker, texts, {index: texts.requests[index] for index in places})

    def end_if_useless(
        self,
        asker: Asker,
        best: Sequence[Completion],
        asked: Sequence[Sequence[str]],
        requests: Sequence[ChatRequest],
    ) -> None:
        """Raise NoText or ModelError if all of the first answers are blank, or nearly all fail."""
        if asker.problem or all(answer.blank for answer in best):
            raise _no_text(asker.problem)
        earlier = Earlier()
        found: list[Fault | None] = [
            self._fault(answer, phrases, request.messages)
            or (None if earlier.takes(self.words_of(answer.text)) else "duplicate")
            for answer, phrases, request in zip(best, asked, requests, strict=False)
            if not answer.blank
        ]
        if sum(map(bool, found)) > _USELESS * len(best):
            self.gate.require(Reading.of(found))

    def _ask_again(self, asker: Asker, texts: _Texts, earlier: Earlier) -> Mapping[int, Fault]:
        """Ask again for texts that fail; return the faults of those that fail each time. If most fail, the model is to
        blame, and is not asked again."""
        best, asked, requests = texts.best, texts.asked, texts.requests
        pending: Sequence[int] = [index for index, answer in enumerate(best) if not answer.blank]
        for left in range(self.tries, -1, -1):
            found = {index: self._fault(best[index], asked[index], requests[index].messages) for index in pending}
            faults = {index: fault for index, fault in found.items() if fault is not None}
            faults |= {
                index: "duplicate"
                for index in pending
                if index not in faults and not earlier.takes(self.words_of(best[index].text))
            }
            if not faults or not left or len(faults) > _HOPELESS * max(len(best), _FEW):
                break
            for index, answer in zip(faults, asker.ask([requests[each] for each in faults], again=True), strict=True):
                texts.tries[index] += 1
                answer = self._in_form(answer, texts.rows[index])
                if not answer.blank and self._fault(answer, asked[index], requests[index].messages) is None:
                    best[index] = answer
            pending = list(faults)
        return faults

    def _fault(self, answer: Completion, phrases: Sequence[str], prompt: Sequence[Message]) -> Fault | None:
        finish = answer.finish_reason if self.form is None else ""
        return self.gate.fault(self.words_of(answer.text), phrases=phrases, prompt=prompt, finish=finish)

    def words_of(self, text: str) -> str:
        """Return the words of a text without what its form adds (JSON keys, names of parts)."""
        if self.form is None or not text:
            return text
        words = list[str]()
        self.form.change(text, lambda said: words.append(said) or said)  # type: ignore[func-returns-value]
        return "\n".join(words)

    def longest_prompts(self, terms: Sequence[str], *, count: int) -> Iterator[tuple[Message, ...]]:
        """Return, for each label, the prompt for the ``count`` longest terms, with the longest examples."""
        phrases = tuple(sorted(terms, key=len, reverse=True)[:count])[: self.template.settings.prompt_terms]
        known = self.template.examples
        examples = tuple(sorted(known, key=lambda each: len(each.text), reverse=True))
        writer = replace(self, template=self.template.model_copy(update={"examples": examples}))
        return (writer._messages(phrases, Seed(phrases, label), 0, None) for label in range(len(self.labels) or 1))

    def _row(self, seed: Seed) -> Row | None:
        return self.rows.take(seed.label) if seed.row is None and self.rows is not None else seed.row

    def _messages(self, phrases: Sequence[str], seed: Seed, index: int, row: Row | None) -> tuple[Message, ...]:
        details = "" if row is None else row.details
        label = self.labels[seed.label] if self.labels else None
        if self.trained:
            kind = self.template.document_type
            return Brief(kind, label=label or "", phrases=tuple(phrases), details=details).messages
        shown = list(self.template.examples)
        count = min(self.template.settings.examples_per_prompt, len(shown))
        turn = [shown[(index * count + offset) % len(shown)] for offset in range(count)]
        schema = (self.form and self.form.schema) or ""
        if self.form is not None:
            formed = [(each, self.form.example(each.text, each.phrases)) for each in turn]
            turn = [each.model_copy(update={"text": text}) for each, text in formed if text is not None]
        label = label if self.template.settings.label_in_prompt else None
        return self.template.messages(phrases, label=label, examples=turn, details=details, schema=schema)

    def request(self, messages: tuple[Message, ...], stop: tuple[str, ...], **others: Any) -> ChatRequest:
        """Return a request for one answer, with the settings of writing."""
        settings = {
            "max_tokens": self.parameters.max_tokens,
            "temperature": self.temperature,
            "top_p": self.template.settings.top_p,
            "sample": self.seed * 1_000_000,
        }
        return ChatRequest(messages, stop=stop, **{**settings, **others})

    def _request(self, messages: tuple[Message, ...], phrases: Sequence[str] = ()) -> ChatRequest:
        asked = tuple(phrases) if self.trained else ()
        if self.form is None:
            return self.request(messages, self.template.stop, phrases=asked)
        return self.request(messages, (), phrases=asked, schema=self.form.schema)

    def _replace(self, asker: Asker, texts: _Texts, requests: Mapping[int, ChatRequest]) -> None:
        """Ask again for some texts; keep whichever answer is better."""
        answers = asker.ask(list(requests.values()), again=True)
        for index, answer in zip(requests, answers, strict=True):
            row = texts.rows[index]
            worth = partial(self._rank, texts.asked[index], requests[index].messages, row)
            texts.best[index] = max(texts.best[index], self._in_form(answer, row), key=worth)

    def _in_form(self, answer: Completion, row: Row | None) -> Completion:
        """Return the answer in its form, cut to fit its row; blank if it lacks the form."""
        if self.form is None:
            return answer
        text = self.form.read(answer) or ""
        return replace(answer, text=text if row is None else self.form.cut(text, row.told))

    def _rank(
        self, phrases: Sequence[str], prompt: Sequence[Message], row: Row | None, answer: Completion
    ) -> tuple[bool, bool, bool, float, bool]:
        """Return the key of :func:`rank`, with answers that pass the gate first, then those that match their row."""
        there, score, whole = rank(answer, phrases, prompt)
        fits = row is None or self.form is None or self.form.fits(answer.text, row.told)
        return there, there and self._fault(answer, phrases, prompt) is None, there and fits, score, whole


_TRIAL = (("refund", "invoice", "twice"), ("train", "late", "morning"), ("doctor", "knee", "appointment"))


def try_writing(chat: ChatModel, *, trained: bool) -> Reading:
    """Ask a chat model for three texts around public words, and return what the gate finds of them.

    Raises NoText if it writes none.
    """
    writer = Writer(chat, load_template("message"), WritingParameters(), gate=ENGLISH, tries=0, trained=trained)
    records = list(writer.write([Seed(phrases, 0) for phrases in _TRIAL]))
    return writer.gate.sift(records, writer.words_of)[1]


@dataclass(frozen=True)
class Form:
    """The form that every text must have: JSON that fits a schema, or a transcript of parts.

    Args:
        example: a text in this form for a prompt to show, of a public text and its phrases; None if there is none.
        change: changes the words of a text of this form, and nothing else.
        cut: cuts a text to fit its row.
        schema: JSON, shown in the prompt and passed to endpoints that know ``response_format``; None: the template asks
            for the form.
    """

    name: str
    read: Callable[[Completion], str | None]  # an answer's text in this form; None if it lacks it
    example: Callable[[str, Sequence[str]], str | None] = lambda text, _phrases: text
    change: Callable[[str, Callable[[str], str]], str] = lambda text, change: change(text)
    cut: Callable[[str, Mapping[str, Value]], str] = lambda text, _told: text
    fits: Callable[[str, Mapping[str, Value]], bool] = lambda _text, _told: True  # whether a text matches its row
    schema: str | None = None
    tries: int = MOST_TRIES  # times to ask again for a text that does not fit


def public_name(model_id: str) -> str:
    """Return a model's name without its endpoint's address or the folder of its weights: provenance is shareable."""
    provider, colon, name = model_id.split("@")[0].partition(":")
    return f"{provider}{colon}{PurePath(name).name if name.startswith(('.', '/', '~')) else name}"


class NoText(ModelError):
    """A language model answered many requests but wrote no text."""


def _no_text(problem: str | None) -> NoText:
    said = "The language model wrote no text at all"
    if problem:  # asking again later may give one
        return NoText(f"{said}: {problem}.", "Repeat the same command later.")
    return NoText(f"{said}.", "Ask another one (--llm).")


class Asker:
    """Asks the chat model, a new sample each time, and reports how many answers have text."""

    def __init__(self, chat: ChatModel, progress: Callable[[int, int], None], *, expected: int) -> None:
        self.chat = chat
        self._progress = progress
        self._expected = expected
        self._done = 0
        self._times: Counter[tuple[Message, ...]] = Counter()
        self._problems: Counter[str] = Counter()

    def ask(self, requests: Sequence[ChatRequest], *, again: bool = False) -> list[Completion]:
        """Return the answers to ``requests``. With ``again``, they are added to the expected number."""
        numbered = []
        for request in requests:
            numbered.append(replace(request, sample=request.sample + self._times[request.messages]))
            self._times[request.messages] += 1
        self._expected += len(requests) if again else 0
        before = self._done
        if not before:
            self._progress(0, self._expected)
        answers = collect(self.chat, numbered, progress=lambda done: self._progress(before + done, self._expected))
        self._done += sum(not answer.blank for answer in answers)
        self._problems.update(answer.error for answer in answers if answer.blank and answer.error)
        return answers

    @property
    def problem(self) -> str:
        """Return the most common error of the answers if none of them had a text."""
        return "" if self._done or not self._problems else self._problems.most_common(1)[0][0]


_REPETITIVE = 0.6  # share of distinct words below which an answer is repetitive
_COPIED = 5  # consecutive words that mark a copy of the prompt's examples


def rank(answer: Completion, phrases: Sequence[str], prompt: Sequence[Message] = ()) -> tuple[bool, float, bool]:
    """Return a sort key, largest for the best answer: whether it has text, its score, and whether it is complete.

    The score is the share of phrases kept. Small models recite the words that they were given ("rain, harvest,
    prices") or add them ("Prices."), repeat themselves, or copy the examples of the prompt: a phrase directly after its
    neighbour in the prompt or alone in a sentence does not count, and a repetitive or copied text loses half. If the
    model judges its answers, the log-odds of making sense are added, and something for each phrase.
    """
    kept = kept_phrases(answer.text, phrases)
    words = split_words(answer.text)
    counted = max(0, len(kept) - _recited(words, phrases) - _added(answer.text, phrases))
    score = counted / max(len(phrases), 1)
    if words and len(set(words)) / len(words) < _REPETITIVE:
        score /= 2
    if any(_runs(words) & _runs(split_words(turn.content)) for turn in prompt if turn.role == "assistant"):
        score /= 2
    if answer.sense is not None:
        score = weighed(answer.sense, share=score, kept=counted)
    return not answer.blank, score, answer.finish_reason == "stop"


def _recited(words: Sequence[str], phrases: Sequence[str]) -> int:
    """Return how many phrases come directly after the phrase that they follow in the prompt."""
    text = f" {' '.join(words)} "
    return sum(f" {' '.join(split_words(f'{first} {second}'))} " in text for first, second in pairwise(phrases))


def _added(text: str, phrases: Sequence[str]) -> int:
    """Return how many phrases are whole sentences of a text that has others."""
    sentences, alone = _SENTENCE.findall(text), {tuple(split_words(phrase)) for phrase in phrases}
    return sum(tuple(split_words(sentence)) in alone for sentence in sentences) if len(sentences) > 1 else 0


def _runs(words: Sequence[str]) -> set[tuple[str, ...]]:
    """Return all runs of ``_COPIED`` words."""
    return {tuple(words[start : start + _COPIED]) for start in range(len(words) - _COPIED + 1)}


_INSIDE = r"[^.!?…。！？]*+"
_MARKS = r"[.!?…]++[\"'”’)\]]*+"
_SENTENCE = re.compile(rf".{_INSIDE}(?:{_MARKS}(?!\s|\Z){_INSIDE})*+(?:{_MARKS}|[。！？]|\Z)\s*+", re.DOTALL)
"""Ends with marks before white space, with a full-width mark, or with the text. Nothing is read twice: an endpoint's
answer may be very long and consist of dots."""
_ENDS = (".", "!", "?", "…", "。", "！", "？", '"', "'", "”", "’", ")", "]")


def tidy(answer: Completion) -> str:
    """Return the text of an answer, ending before it repeats itself or breaks off.

    Small models repeat whole sentences without end: the text ends before the first repeated one (of three words or
    more). An answer that reached the token limit ends with its last whole sentence, if there is one. Halves of
    surrogate pairs, which UTF-8 cannot encode, become U+FFFD. Empty if nothing is left.
    """
    if answer.blank:
        return ""
    text = answer.text.strip().encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    kept, seen = [], set[tuple[str, ...]]()
    for sentence in _SENTENCE.findall(text):
        words = tuple(split_words(sentence))
        if len(words) >= 3 and words in seen:
            break
        seen.add(words)
        kept.append(sentence)
    if answer.finish_reason == "length" and len(kept) > 1 and not kept[-1].rstrip().endswith(_ENDS):
        kept.pop()
    return "".join(kept).strip()
