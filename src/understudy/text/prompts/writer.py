"""What the built-in writer is asked: one short turn, in the form that it was trained on (``training/``)."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.models.types import Message

_ANSWERS = frozenset({"true", "false", "yes", "no", "none", "other"})


def subject(label: str) -> str:
    """What a text with this label is about, in words; "" where the label's name says nothing of it.

    >>> subject("card_arrival"), subject("5"), subject("true")
    ('card arrival', '', '')
    """
    words = " ".join(label.replace("_", " ").split())
    return words if sum(map(str.isalpha, words)) > 1 and words.lower() not in _ANSWERS else ""


@dataclass(frozen=True)
class Asked:
    """A kind of text, and what it is to hold."""

    kind: str
    label: str = ""
    words: int | None = None  # about how many
    phrases: tuple[str, ...] = ()
    details: str = ""
    blanks: str = ""  # a text whose words are partly blanks

    @property
    def prompt(self) -> str:
        """In the words of the training.

        >>> Asked("news item", label="sport", words=20, phrases=("cup", "final")).prompt
        'news item about sport, 20 words\\nWords: cup, final'
        """
        about = f" about {self.label}" if self.label else ""
        length = f", {self.words} words" if self.words else ""
        lines = [f"{self.kind}{about}{length}", self.details]
        lines += [f"Words: {', '.join(self.phrases)}"] if self.phrases else []
        lines += [f"Blanks: {self.blanks}"] if self.blanks else []
        return "\n".join(line for line in lines if line)

    @property
    def messages(self) -> tuple[Message, ...]:
        """A chat of one system turn: as a user's, the model's own template would put a system turn before it."""
        return (Message("system", self.prompt),)
