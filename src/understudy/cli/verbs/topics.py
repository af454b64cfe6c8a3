"""``understudy topics``: find what a table is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from understudy.base.parameters import Free
from understudy.cli.making import ADVISED, BUDGET, settings_of
from understudy.cli.options import ParametersCommand, config_option, json_option
from understudy.cli.output import answer, listener
from understudy.methods.additions.topics.labelling import LabellingParameters
from understudy.methods.additions.topics.plan import NAME as TOPICS
from understudy.methods.registry import method_class
from understudy.run.settings import Groups, ModelParameters, release_groups


def _topics_groups(_args: Sequence[str]) -> Groups:
    *shared, own = release_groups(method_class(TOPICS))
    groups = (each for each in shared if each is not LabellingParameters)  # its topics are not labels
    return (*groups, _TitleParameters, own)


class _TitleParameters(ModelParameters):
    """The language model that gives topics titles; it sees only their released terms."""

    llm: Free[str] = "none"
    """``none`` (the names alone), ``builtin``, ``hf:ORG/NAME``, or an endpoint's model (docs/endpoints.md)."""


@click.command(
    cls=ParametersCommand,
    groups=_topics_groups,
    main=(
        *("data", "text", "roles", "language", "owner", *BUDGET, "topics", *ADVISED[1:3]),
        *("expected_records", "llm", "output"),
    ),
)
@config_option
@json_option
def topics(config: str | None, as_json: bool, **values: Any) -> None:
    """Find what a private table is about: topics with names and noisy sizes, and no text of any record.

    Writes the page release/topics.html in the output folder and prints its path. You may hand this page out. The same
    command resumes.
    """
    from understudy.report.topics import write_topics
    from understudy.run.topics import find_topics

    settings = settings_of({**values, "method": TOPICS}, config)
    with listener() as told:
        found = find_topics(settings, listener=told)
    assert found.folder is not None
    page = write_topics(found, found.folder.topics_file)
    fields = {"output": str(found.folder.root), "release": str(found.folder.release_file(TOPICS)), "page": str(page)}
    answer(as_json, {**fields, "topics": found.to_json()}, page)
