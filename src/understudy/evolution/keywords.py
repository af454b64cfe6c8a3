"""Public keywords for new texts: of a user's file, or of the prompt template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from understudy.errors import ConfigError
from understudy.evolution.parameters import EvolutionParameters
from understudy.generation.evolving import EvolutionPrompts


def keywords_of_labels(
    parameters: EvolutionParameters, prompts: EvolutionPrompts, labels: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """The keywords of each label (of the one and only, nameless, if there are no labels); maybe none.

    Raises:
        ConfigError: if the file cannot be read or holds no keyword, or the user's word is missing that it is public.
    """
    if parameters.keywords is not None:
        if not parameters.keywords_are_public:
            raise ConfigError(
                "Keywords of your own must not come from the private data.",
                "If they are public, say so with --keywords-are-public.",
            )
        prompts = _read(Path(parameters.keywords))
    return tuple(prompts.keywords_of(label) for label in labels or ("",))


def _read(file: Path) -> EvolutionPrompts:
    import yaml

    try:
        text = file.read_text("utf-8-sig")
        lines = tuple(line.strip() for line in text.split("\n") if line.strip())
        found = yaml.safe_load(text) if file.suffix in (".yaml", ".yml") else lines
        made = EvolutionPrompts(keywords=found)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"The keywords {file.name} cannot be read ({type(error).__name__}).", "Give a UTF-8 text or YAML file."
        ) from None
    except ConfigError:
        made = EvolutionPrompts()
    if not any(made.keywords.values()):
        raise ConfigError(
            f"{file.name} holds no keywords.", "Write one a line, or YAML with a list of keywords for each label."
        )
    return made
