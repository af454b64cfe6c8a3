"""What a run's prompts are made of: the template, public examples, and how the user wants them written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from understudy.generation.parameters import WritingParameters
from understudy.generation.template import Example, PromptTemplate


@dataclass(frozen=True)
class Prompts:
    """Loaded and checked, all of it public.

    Args:
        parameters: as the user chose.
        template: of the document type.
        examples: the user's own; none for the template's.
    """

    parameters: WritingParameters
    template: PromptTemplate
    examples: Sequence[Example] = ()
