"""What a user may choose about the writing of texts. All of it is post-processing."""

from __future__ import annotations

from pydantic import Field

from understudy.base.parameters import Parameters, public_file


class WritingParameters(Parameters):
    """How a language model turns seeds into texts."""

    document_type: str = "document"
    """What is to be written: picks the prompt template of that name, or fills the general one."""
    prompt: str | None = public_file(None)
    """A prompt template file of your own (YAML)."""
    examples: str | None = public_file(None)
    """Public example texts for the prompt: a file with one text per line, or JSONL with ``text`` and ``phrases``."""
    examples_are_public: bool = False
    """Your word that the example texts do not come from the private data."""
    examples_per_prompt: int = Field(3, ge=0, le=50)
    """How many examples a prompt shows."""
    prompt_terms: int | None = Field(None, ge=1)
    """Put only the first phrases of a seed into the prompt (small models drop terms)."""
    label_in_prompt: bool = False
    """Name the label in the prompt (the label set must be public)."""
    samples: int = Field(1, ge=1, le=64)
    """Answers to each prompt, of which the one with most phrases is kept."""
    repair: int = Field(0, ge=0, le=8)
    """Times to ask again for a text with the phrases that are missing."""
    llm_temperature: float = Field(0.7, ge=0, le=100)
    """Sampling temperature of the language model."""
    top_p: float = Field(0.95, gt=0, le=1)
    """Nucleus sampling of the language model."""
    max_tokens: int = Field(160, ge=1, le=1_000_000)
    """Longest answer in tokens."""
    json_schema: str | None = public_file(None)
    """A JSON schema file: every text is a JSON object that fits it (methods that prompt with phrases)."""
