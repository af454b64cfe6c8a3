"""What the tab key completes: files where files are named, and the names that are known here."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

_FILES = frozenset(
    (
        *("config", "data", "folder", "from_dir", "ledger", "location", "output", "real", "release", "runs", "scratch"),
        *("synthetic", "table", "holdout", "recipient", "public_texts", "vocabulary", "stop_words", "keywords"),
        *("prompt", "json_schema", "secrets_file", "public_corpus"),
    )
)


def _known(command: str | None, name: str) -> Iterable[str]:
    if name == "method":
        from understudy.methods.registry import method_names

        return method_names()
    if name in ("llm", "spec"):
        from understudy.models.presets import PRESETS

        return ("builtin", *(("none",) if name == "llm" else ()), "hf:", "openai:", *(f"{each}:" for each in PRESETS))
    if name in ("embedder", "private_model", "local_model"):
        return ("builtin", "hf:", *(("none",) if command == "evaluate" and name == "embedder" else ()))
    if name in ("metrics", "classifiers"):
        from understudy.evaluate.parameters import CLASSIFIERS, FAMILIES

        return FAMILIES if name == "metrics" else CLASSIFIERS
    if command == "mechanism" and name == "name":
        from understudy.audit.mechanisms.registry import ALL, MECHANISMS

        return (*MECHANISMS, ALL)
    return ()


class Text(click.types.StringParamType):
    """Any text, and how it is completed."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        name = str(param.name)
        if name in _FILES:
            return [CompletionItem(incomplete, type="file")]
        return [
            CompletionItem(each)
            for each in dict.fromkeys(_known(ctx.command.name, name))
            if each.startswith(incomplete)
        ]


TEXT = Text()
