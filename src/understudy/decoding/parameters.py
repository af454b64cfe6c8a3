"""What a user may choose about texts that a local model draws token by token."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from understudy.parameters import Parameters, public_file


class TextParameters(Parameters):
    """Prompts that show private texts, and texts drawn from them."""

    prompt_form: Literal["completion", "chat"] = "completion"
    """How the model is asked: ``completion`` as a document to continue, ``chat`` in its own chat form."""
    private_text_tokens: int = Field(128, ge=1, le=1_000_000)
    """A private text is cut to so many tokens; all prompts are padded to that, so more costs time."""
    unfinished: Literal["drop", "keep"] = "drop"
    """What to do with a text that did not end within its tokens."""
    record_form: Literal["json", "lines"] = "json"
    """How the model sees and writes records: as JSON, or as lines ``column: value``, of which JSON is made."""
    json_schema: str | None = public_file(None)
    """Records: a public JSON Schema file that they must fit, and that the prompt shows."""
