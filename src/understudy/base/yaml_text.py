"""Read YAML as people mean it: ``yes`` and ``no`` are words, and no name occurs twice."""

from __future__ import annotations

from typing import Any

import yaml

from understudy.base.files import UnreadableText

_BOOLEAN = "tag:yaml.org,2002:bool"


class _RepeatedName(yaml.MarkedYAMLError):
    """A mapping has a name twice: one of its values would be lost."""


class _Loader(yaml.SafeLoader):
    # PyYAML follows YAML 1.1, in which yes, no, on and off are booleans. In 1.2 only true and false are.
    yaml_implicit_resolvers = {  # noqa: RUF012 - the name is PyYAML's
        first: [(tag, form) for tag, form in known if tag != _BOOLEAN or first in "tTfF"]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            name = (key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None
            if name in seen:
                raise _RepeatedName(problem_mark=key.start_mark)
            if name is not None:
                seen.add(name)
        return node


def load_yaml(text: str) -> Any:
    """Return the content of a YAML document.

    ``yes``, ``no``, ``on`` and ``off`` are strings, as in YAML 1.2, since they may be labels. Boolean parameters accept
    them as well. Raises UnreadableText, which gives the place and does not quote the file: it may be a private table,
    named by mistake.
    """
    loader = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        why = "a name occurs again" if isinstance(error, _RepeatedName) else "it is not YAML"
        mark = error.problem_mark
        where = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise UnreadableText(f"{why}{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # an invalid date, or a number too long
        raise UnreadableText(type(error).__name__) from None
    finally:
        if loader is not None:
            loader.dispose()
