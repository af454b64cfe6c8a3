"""Public example texts for prompts: read from a file, each with phrases that it holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from understudy.errors import ConfigError
from understudy.files import UnreadableText, read_lines
from understudy.prompts.template import Example
from understudy.vocabulary.words import kept_phrases


def read_examples(file: str | Path) -> list[Example]:
    """The examples of a file: one text a line, or JSONL with ``text`` and optionally ``phrases``, a list.

    Raises:
        ConfigError: if the file cannot be read or holds something else.
    """
    path = Path(file)
    if path.suffix == ".json":
        raise ConfigError(
            f"The examples {path.name} are one JSON file, which would be read as texts line by line.",
            "Give one text a line (.txt), or a JSON object a line (.jsonl).",
        )
    try:
        lines = [line for line in read_lines(path) if line.strip()]
        rows = [json.loads(line) for line in lines] if path.suffix in (".jsonl", ".ndjson") else lines
    except (ValueError, RecursionError, UnreadableText) as error:
        why = error if isinstance(error, UnreadableText) else type(error).__name__
        raise ConfigError(
            f"The examples {path.name} cannot be read ({why}).", "Give a UTF-8 text or JSONL file."
        ) from None
    fields = [{"phrases": (), **row} if isinstance(row, dict) else {"phrases": (), "text": row} for row in rows]
    try:
        return [Example(**each) for each in fields]
    except ConfigError as error:
        raise ConfigError(
            f"The examples {path.name} are not as they should be ({error.problem.rstrip('.')}).",
            "Give JSONL lines with `text` and, if you like, `phrases`, a list.",
        ) from None


def with_phrases(examples: Sequence[Example], known: Sequence[str], *, count: int) -> list[Example]:
    """The examples, those without phrases given up to ``count`` of the ``known`` ones that they hold.

    Examples that hold none are left out.

    Raises:
        ConfigError: if there are examples, but none of use.
    """
    made = [
        Example(text=example.text.strip(), phrases=example.phrases or kept_phrases(example.text, known)[:count])
        for example in examples
    ]
    useful = [example for example in made if example.text and example.phrases]
    if examples and not useful:
        raise ConfigError(
            "The examples hold no text with a phrase of the Release.", "Give JSONL lines with `text` and `phrases`."
        )
    return useful
