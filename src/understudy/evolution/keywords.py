"""Public keywords for new texts: of a user's file, or of the prompt template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from understudy.errors import ConfigError
from understudy.evolution.parameters import EvolutionParameters
from understudy.files import MOST_SETTINGS_BYTES, UnreadableText, cannot_read, read_lines, read_whole
from understudy.prompts.evolving import EvolutionPrompts


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
        if file.suffix in (".yaml", ".yml"):
            found = yaml.safe_load(read_whole(file, most=MOST_SETTINGS_BYTES).decode("utf-8-sig"))
        else:
            found = tuple(line.strip() for line in read_lines(file) if line.strip())
        made = EvolutionPrompts(keywords=found)
    except (ValueError, RecursionError, yaml.YAMLError, UnreadableText) as error:
        raise cannot_read(f"The keywords {file.name}", error, "Give a UTF-8 text or YAML file.") from None
    except ConfigError:
        made = EvolutionPrompts()
    if not any(made.keywords.values()):
        raise ConfigError(
            f"{file.name} holds no keywords.", "Write one per line, or YAML with a list of keywords for each label."
        )
    return made
