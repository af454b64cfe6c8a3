"""The gate: read every text that a model wrote, and report its faults.

It uses the text, its prompt, its released phrases and the texts before it: post-processing of released values. Its
limits were chosen on the real texts of thirteen public tables: fewer than 2 % of them fail for any one reason.
"""

from __future__ import annotations

import heapq
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, Literal

from understudy.base.errors import ModelError
from understudy.models.types import Message
from understudy.text.records import SyntheticRecord
from understudy.text.vocabulary.words import kept_phrases, split_words

Fault = Literal[
    "refusal", "preamble", "echo", "phrases", "language", "repetition", "unfinished", "length", "duplicate", "opening"
]
FAULTS: dict[Fault, tuple[str, str]] = {
    "refusal": ("refuses to write", "refuse to write"),
    "preamble": ("speaks of the task", "speak of the task"),
    "echo": ("repeats its prompt", "repeat their prompts"),
    "phrases": ("keeps none of its phrases", "keep none of their phrases"),
    "language": ("is in another language", "are in another language"),
    "repetition": ("repeats itself", "repeat themselves"),
    "unfinished": ("breaks off", "break off"),
    "length": ("is hardly a text", "are hardly texts"),
    "duplicate": ("is nearly the same as an earlier one", "are nearly the same as earlier ones"),
    "opening": ("begins with the same line as most", "begin with the same line"),
}
"""Each reason for which a text fails, worded for one text and for several."""
MOST_FAILING = 1 / 3
"""If more than this share of the texts fail, no table is written."""
_CAUSES: dict[Fault, str] = {
    "phrases": ": the model seems to ignore the prompt",
    "echo": ": the model seems to complete text, not to answer",
    "refusal": ": the model takes the task for harmful",
    "unfinished": ": the answers may be too short (--max-tokens)",
    "duplicate": ": the model hardly varies its answers (--llm-temperature)",
}

_CANNOT = (
    r"(?:can(?:no|['’])?t|cannot|won['’]?t|will not|(?:am|['’]m)(?: sorry,? but)?(?: i am| i['’]m)? "
    r"(?:unable|not able|not comfortable|not going))(?: to)?"
)
_SORRY = r"(?:i['’]?m|i am|we are) (?:\w+ )?sorry|sorry|i apologi[sz]e|my apologies|unfortunately"
_WRITE = r"(?:generat|creat|writ|provid|produc|engag|fulfil|comply|continu)\w*"
_TASKED = r"(?:requests?|content|texts?|prompts?|topics?|instructions?|documents?|guidelines|policies|that|this)"
_REFUSAL = (
    rf"\W*(?:{_SORRY})\b[^.!?\n]{{0,30}}?\b(?:i|we) ?{_CANNOT} (?:help|assist|do (?:that|this)|fulfil|comply)\b",
    rf"\W*(?:(?:{_SORRY})\b[^.!?\n]{{0,30}}?\b)?(?:i|we) ?{_CANNOT} (?:{_WRITE}|help|assist)\b"
    rf"[^.!?\n]{{0,60}}\b{_TASKED}\b",
    r".{0,80}\b(?:as an? (?:ai|artificial intelligence|(?:large )?language model)|i['’]?m an? ai)\b",
    r"\W*(?:(?:es )?tut mir leid|entschuldigung),? (?:aber )?(?:ich |dabei |das )?(?:kann|darf)\b.{0,40}\bnicht\b",
    r"\W*(?:je suis désolée?|désolée?),? (?:mais )?je ne (?:peux|suis) pas\b",
    r"\W*(?:lo siento|perdón|disculpa),? (?:pero )?no puedo\b",
    r"\W*mi dispiace,? (?:ma )?non posso\b",
    r"\W*(?:desculpe|lamento|sinto muito),? (?:mas )?não posso\b",
    r"\W*(?:het spijt me|sorry),? (?:maar )?ik kan\b.{0,40}\bniet\b",
)
_TASK = (
    r"\W*(?:sure|certainly|of course|absolutely|okay|ok|understood|got it|as requested)\b[^\n]{0,150}?"
    r"\b(?:here(?:['’]s| is| are)|below is) (?:an?|the|your|one|some)\b[^\n]{0,120}?(?::|\n|\Z)",
    r"\W*(?:here(?:['’]s| is| are)|below is|this is) (?:an?|the|your|my|one) [^.\n]{0,80}?\b(?:text|ticket|review|note|"
    r"message|email|document|example|version|answer|response|question|paragraph|sentence|json)\b[^.\n]{0,80}:\s",
    r".*\b(?:using|includes?|including|contains?|containing|incorporat\w+|all|with) (?:of )?(?:all )?(?:the|your) "
    r"(?:\w+ ){0,2}(?:keywords|key ?phrases|required (?:words|phrases)|(?:given|provided|following|requested) (?:words|"
    r"phrases|terms))\b",
    r".*(?:</?think(?:ing)?>|<\|\w+\|>|\[/?INST\])",
    r"\W*(?:okay|ok|alright|hmm|wait),? (?:so )?(?:the user|i need to|let me|let's)\b",
    r"\W*the user (?:wants|asks|is asking|needs)\b",
)
_compiled = cache(partial(re.compile, flags=re.IGNORECASE | re.DOTALL))
_ENDED = re.compile(r"[.!?…。！？:;)\]}\"'”’»*>|~]\W*\Z|\d\W*\Z|[^\x00-\x7f]\W*\Z")
_OPEN = frozenset(
    split_words(
        "a an the and or but because my your our their its with der die das ein eine und oder aber weil mit "
        "le la les un une et ou du des el los las il lo gli het een"
    )
)
"""Words that do not end a sentence."""


@dataclass(frozen=True)
class Gate:
    """Reads synthetic texts and finds their faults.

    Args:
        languages: codes (ISO 639-1) of the allowed languages; empty for any.
        accept_all: whether texts that fail are kept.
        check: the command that tests the model.
    """

    languages: frozenset[str] = frozenset()
    accept_all: bool = False
    check: str = "`understudy models check`"

    def fault(
        self, text: str, *, phrases: Sequence[str] = (), prompt: Sequence[Message] = (), finish: str = "stop"
    ) -> Fault | None:
        """Return why a text fails by itself, the most serious reason first; None if it passes.

        Args:
            phrases: the phrases of its prompt.
            finish: the ``finish_reason`` of its answer; empty if the text has parts, whose form defines their ends.
        """
        words, head = split_words(text), text.lstrip()[:_HEAD]
        if len(words) < _MOST_REFUSING and any(_compiled(each).match(head) for each in _REFUSAL):
            return "refusal"
        if any(_compiled(each).match(head) for each in _TASK):
            return "preamble"
        if len(words) < _FEWEST:
            return "length"
        if _echoes(words, phrases, prompt):
            return "echo"
        if _repeats(words):
            return "repetition"
        if phrases and not any(_kept(text, words, phrase) for phrase in phrases):
            return "phrases"
        if self.languages and len(words) >= _TELLING:
            found = languages_of(text)
            if sum(found.get(language, 0.0) for language in self.languages) < _POSSIBLE:
                return "language"
        return "unfinished" if finish and _breaks_off(text, words, finish) else None

    def sift(self, records: Sequence[SyntheticRecord], plain: Callable[[str], str]) -> Sifted:
        """Check all texts of a table. Texts that fail are emptied, unless all are accepted.

        Args:
            plain: the words of a text that has parts.
        """
        lines = Counter(record.text.partition("\n")[0] for record in records if "\n" in plain(record.text).strip())
        alike = {line for line, count in lines.items() if count > max(len(records) / 2, 3)}
        earlier, sifted, found = Earlier(), [], []
        for record in records:
            known, text = record.provenance, plain(record.text)
            finish = "" if text != record.text else known.get("finish", "stop")
            fault = known.get("fault") or self.fault(text, phrases=known.get("phrases", ()), finish=finish)
            if fault is None and text == record.text and text.partition("\n")[0] in alike:
                fault = "opening"
            if fault is None and not earlier.takes(text):
                fault = "duplicate"
            if record.text:
                found.append(fault)
            if fault is not None:
                text = record.text if self.accept_all else ""
                record = replace(record, text=text, provenance={**known, "fault": fault})
            sifted.append(record)
        return sifted, Reading.of(found, kept=self.accept_all)

    def require(self, reading: Reading) -> None:
        """Raise ModelError if so many texts failed that the model is to blame, unless all are accepted."""
        texts, failed = reading.texts, reading.failed
        if self.accept_all or failed <= MOST_FAILING * texts:
            return
        (fault, count), *others = reading.faults.items()
        more = f" ({failed} of {texts} fail: {reading.reasons})" if others else ""
        raise ModelError(
            f"{count} of {texts} texts {FAULTS[fault][count > 1]}{_CAUSES.get(fault, '')}{more}.",
            f"Try the model with {self.check}, or take the texts as they are with --accept-all: the answers are kept, "
            "and not requested again.",
        )


Sifted = tuple[list["SyntheticRecord"], "Reading"]

_HEAD = 600
_FEWEST, _TELLING, _MOST_REFUSING = 2, 8, 80  # words
_POSSIBLE = 1e-4  # the probability of a language above which a text may be in it
_LONG = 12  # words of a text from which repetitions are not chance
_MOST_DIGITS = 30  # in a row: no account or reference number is longer


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def languages_of(text: str) -> dict[str, float]:
    """Return the possible languages of a text, by code (ISO 639-1), with probabilities, the likeliest first."""
    return {str(language): float(probability) for language, probability in _identifier().rank(text[:2000])}


def language_of(text: str) -> str:
    """Return the code of the likeliest language of a text."""
    return next(iter(languages_of(text)))


OPEN, ENGLISH = Gate(), Gate(frozenset({"en"}))
"""For texts in any language, and in English."""


def _runs(words: Sequence[str], length: int) -> Iterator[tuple[str, ...]]:
    return (tuple(words[start : start + length]) for start in range(len(words) - length + 1))


_COPIED = 8
"""Number of consecutive words that no text shares with its prompt by chance."""


def _echoes(words: Sequence[str], phrases: Sequence[str], prompt: Sequence[Message]) -> bool:
    """Return whether a text copies its prompt or lists its phrases."""
    if not words:
        return False
    given = {word for phrase in phrases for word in split_words(phrase)}
    if len(given) > 2 and sum(word not in given for word in words) < min(3, len(words) / 4):
        return True
    shown = [split_words(message.content) for message in prompt]
    known = {run for turn in shown for run in _runs(turn, _COPIED)}
    return any(run in known and any(word not in given for word in run) for run in _runs(words, _COPIED))


def _repeats(words: Sequence[str]) -> bool:
    """Return whether the same words or digits are repeated many times, or most of a text repeats earlier parts."""
    if any(word.isdigit() and len(word) > _MOST_DIGITS for word in words):
        return True
    for size in range(1, 7):
        same, most = 0, (5 if size == 1 else 3 if size > 2 else 4) * size
        for place in range(size, len(words)):
            same = same + 1 if words[place] == words[place - size] else 0
            if same >= most - size and not all(word.isdigit() for word in words[place - size + 1 : place + 1]):
                return True
    pairs = Counter(_runs(words, 2)).most_common(1)
    if len(words) >= _LONG and pairs[0][1] >= max(4, 0.1 * len(words)):
        return True
    runs = list(_runs(words, 3))
    return len(runs) >= _LONG and len(set(runs)) < 0.7 * len(runs)


def _kept(text: str, words: Sequence[str], phrase: str) -> bool:
    """Return whether a text contains the phrase, or each of its words in some form ("refunds" for "refund")."""
    if kept_phrases(text, (phrase,)):
        return True
    stems = [word[: max(4, len(word) - 2)] for word in split_words(phrase)]
    return all(any(word.startswith(stem) for word in words) for stem in stems if len(stem) > 3 or len(stems) == 1)


def _breaks_off(text: str, words: Sequence[str], finish: str) -> bool:
    if _ENDED.search(text.rstrip()):
        return False
    return finish == "length" or text.rstrip()[-1:] in ",-–—(&" or words[-1] in _OPEN


@dataclass
class Earlier:
    """The texts checked so far, for finding near-duplicates.

    Two are nearly the same if they share most of their runs of three words, without numbers. Four hashes find a text.
    """

    least: float = 0.8  # the smallest Jaccard index
    _found: dict[int, frozenset[int]] = field(default_factory=dict)

    def takes(self, text: str) -> bool:
        """Return whether a text is not a near-duplicate of an earlier one, and remember it."""
        words = ["0" if word.isdigit() else word for word in split_words(text)]
        runs = frozenset(zlib.crc32(" ".join(run).encode()) for run in _runs(words, 3)) or frozenset(
            {zlib.crc32(" ".join(words).encode())}
        )
        least = heapq.nsmallest(4, runs)
        for other in filter(None, map(self._found.get, least)):
            if len(runs & other) >= self.least * len(runs | other):
                return False
        for each in least:
            self._found.setdefault(each, runs)
        return True


@dataclass(frozen=True)
class Reading:
    """The gate's findings on a table's texts.

    Args:
        texts: how many were read.
        faults: how many failed, by reason.
        kept: whether those that failed are in the table.
    """

    texts: int = 0
    faults: dict[Fault, int] = field(default_factory=dict)
    kept: bool = False

    @classmethod
    def of(cls, found: Iterable[Fault | None], *, kept: bool = False) -> Reading:
        every = list(found)
        counts = Counter(each for each in every if each is not None)
        return cls(len(every), dict(counts.most_common()), kept)

    @cached_property
    def failed(self) -> int:
        return sum(self.faults.values())

    @property
    def sentence(self) -> str:
        """Return a sentence for the user; empty if nothing was read.

        >>> Reading(200, {"phrases": 2, "echo": 1}).sentence
        '197 of 200 texts passed the checks; 3 were left out: 2 keep none of their phrases, 1 repeats its prompt.'
        """
        if not self.texts:
            return ""
        if not self.failed:
            return f"All {self.texts} texts passed the checks." if self.texts > 1 else "The text passed the checks."
        were = "were" if self.failed > 1 else "was"
        left = f"{self.failed} {were} {'kept all the same' if self.kept else 'left out'}"
        return f"{self.texts - self.failed} of {self.texts} texts passed the checks; {left}: {self.reasons}."

    @property
    def reasons(self) -> str:
        """Return the number of texts that fail, by reason, in words."""
        return ", ".join(f"{count} {FAULTS[fault][count > 1]}" for fault, count in self.faults.items())

    def to_json(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        return {"read": self.texts, "passed": self.texts - self.failed, "failed": dict(self.faults), "kept": self.kept}


UNREAD = Reading()
