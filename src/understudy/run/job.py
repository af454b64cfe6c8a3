"""Resolve a configuration once: the parts of a run, each checked when it is made. Every step takes those it needs.

All errors that public facts can show are raised here, before a folder is touched, a model loaded or anything charged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from understudy.base.errors import ConfigError
from understudy.methods.additions.registry import additions_of
from understudy.methods.additions.topics.labelling import COLUMN
from understudy.methods.additions.topics.plan import line_on_sample
from understudy.methods.facts import PublicFacts
from understudy.methods.usual import judged
from understudy.privacy.plan import Plan
from understudy.release.statement import require_readable_charges
from understudy.run import defaults, settings
from understudy.run.parts import Chat, PrivateModel, Promise, PublicEmbedder, Table, Texts, Wanted, no_label_counts
from understudy.run.session import Lasting
from understudy.run.settings import RunConfig
from understudy.schema.labels import LabelSet
from understudy.schema.transcript import PLAIN, TextForm
from understudy.text.prompts.template import WritingParameters


class FreeJob:
    """The resolved configuration of a command that reads no private table: texts from a Release, or from labels alone.

    Args:
        config: from flags, YAML or Python; no later step reads it.
        begun: the settings that the run in the output folder began with, if the caller has read them.
        form: the parts that a text consists of (fields, turns of a dialogue), if any.
        additions: the names of the Release's additions.
        labels: the number of the Release's labels; None: as the configuration declares.
        foreign: whether the texts are assumed not to be English.
        releases, generates: whether a Release is made, and texts from it.
    """

    def __init__(
        self,
        config: RunConfig,
        begun: defaults.Begun | None = None,
        *,
        form: TextForm = PLAIN,
        additions: Collection[str] = (),
        labels: int | None = None,
        foreign: bool = False,
        releases: bool = False,
        generates: bool = True,
    ) -> None:
        config = config.model_copy(update={"guide": bool(config.guide)})
        begun = defaults.settings_begun(config) if begun is None else begun
        labels = config.label_set.size if labels is None else labels
        self.method = config.chosen_method
        self.decided: tuple[str, ...] = ()
        if generates:
            shares = not {"columns", "topics"}.isdisjoint(additions)  # the Release knows its labels
            config, self.decided = defaults.settled(config, begun, labels=labels, shares=shares, form=form)
        self.wanted = config.part(Wanted)
        labelled = (config.label is not None or labels > 1) and not additions
        if generates and self.wanted.like_private and labelled and not self.method.counts_labels:
            raise no_label_counts(self.method)
        if generates:
            self.wanted.require(self.method, labels=labels, additions=additions)
        self.texts = Texts(config.part(WritingParameters), form, config.record_columns, foreign)
        self.chat = Chat.of(config, self.method, self.texts, releases=releases, generates=generates)
        self.embedder = config.part(PublicEmbedder)
        self.private_model = config.part(PrivateModel)
        self.place = config.part(settings.OutputParameters)
        self.signing = config.part(settings.SigningParameters)
        self.dataset = config.dataset
        self.ledger = config.ledger
        self.lasting = Lasting(config.lasting, config.changeable)
        for name, value in {**self.lasting.settings, "dataset": self.dataset}.items():
            try:  # a statement cannot name bytes of file names, or half characters of JSON
                json.dumps(value, ensure_ascii=False).encode("utf-8")
            except UnicodeEncodeError:
                raise ConfigError(
                    f"The setting {name!r} contains characters that UTF-8 cannot encode.",
                    "Write it, or rename the file, with valid UTF-8 characters.",
                ) from None


_LIKELY = LabelSet(tuple(f"label {number}" for number in range(1, 11)))
"""Labels that a verdict assumes if only the data will show them: with 2 or 77 it is off by at most one level."""


class Job(FreeJob):
    """The resolved configuration of a command that makes a Release of a private table, and possibly texts from it.

    Args:
        config: from flags, YAML or Python; no later step reads it.
        charges: whether the ledger is charged, so that the dataset needs a name there.
        generates: whether texts are made; None: if a number of texts is given.
    """

    def __init__(self, config: RunConfig, *, charges: bool = False, generates: bool | None = None) -> None:
        config, on_folder = defaults.with_folder(config)
        begun = defaults.settings_begun(config)
        config, on_delta = defaults.with_delta(config, begun)
        named = config.dataset is not None or len(config.data) == 1  # else the name is asked for first
        there = all(map(os.path.exists, config.data))  # missing files are missed after the ledger is asked
        self.table = Table.of(config, look=charges and named and there and not begun)
        self.language_decision = defaults.LanguageDecision.of(config, self.table)
        config = self.language_decision.config
        self.topics_decision = defaults.TopicsDecision.of(config, begun)
        config = self.topics_decision.applied(config)
        self.label_set = config.label_set
        config, on_size = defaults.fitted(config, begun)
        self.fitted_line = " ".join(filter(None, [on_delta, on_size, self.language_decision.line]))
        self.guide_decision = defaults.GuideDecision.of(config, self.table, begun)
        config = config.model_copy(update={"guide": self.guide_decision.on})
        self._facts = _facts(config, self.table)
        self.additions = additions_of(config, self._facts)
        super().__init__(
            config,
            begun,
            form=config.form,
            additions=[each.name for each in self.additions],
            foreign=self.language_decision.language not in (None, "en"),
            releases=True,
            generates=config.part(Wanted).said if generates is None else generates,
        )
        self.decided = (*filter(None, [on_folder]), *self.decided)
        self.promise = Promise.of(config, self.method, charges=charges)
        for each in self.additions:
            each.require(self.method)
        self.engine = config.part(settings.EngineParameters)

    def require_language(self) -> None:
        """Raise ConfigError if the language of the texts, or its terms, must be named before a charge."""
        if problem := self.language_decision.problem:
            raise ConfigError(*problem)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings that follow from public facts."""
        return (*self.promise.warnings, *self.language_decision.warnings, *self.promise.ledger_warnings)

    def plan(self, labels: LabelSet | None = None) -> Plan:
        """Divide the budget among the method and the additions, and return all releases with their charges; the given
        labels replace the declared ones. Reads no private data."""
        if labels is None or labels == self._facts.labels:
            return self._declared_plan
        return self._plan(replace(self._facts, labels=labels))

    @cached_property
    def _declared_plan(self) -> Plan:
        return self._plan(self._facts)

    def _plan(self, facts: PublicFacts) -> Plan:
        def plan_method(rest: Any) -> Plan:
            plan = judged(self.method.plan(rest, facts), facts)
            if facts.label is None or facts.labels.names:
                return plan
            supposed = replace(facts, labels=_LIKELY)
            found = judged(self.method.plan(rest, supposed), supposed).forecast.verdict
            found = found and replace(found, if_labels=_LIKELY.size)
            return replace(plan, forecast=replace(plan.forecast, verdict=found))

        plan_rest: Callable[[Any], Plan] = plan_method
        for addition in reversed(self.additions):  # each takes its share and leaves the rest to the earlier ones
            plan_rest = partial(addition.plan, facts, plan_rest)
        plan = plan_rest(self.promise.budget)
        require_readable_charges(plan.charges)
        return plan

    def decisions(self, plan: Plan) -> dict[str, str]:
        """Return a line for the user about each default that was decided from public facts."""
        guide = self.guide_decision
        lines = {
            "fitted": self.fitted_line,
            "topics_why": self.topics_decision.line,
            "topics_sample": line_on_sample(plan, self.promise.expected_records),
            "guide": f"Guide {'on' if guide.on else 'off'}: {guide.why}." if guide.why else "",
        }
        return {name: line for name, line in lines.items() if line}

    @property
    def finds_labels(self) -> bool:
        """Return whether an addition finds the labels of the records."""
        return any(each.finds_labels for each in self.additions)

    @property
    def embeds_private_texts(self) -> bool:
        return self.method.needs.embedder or any(each.embeds for each in self.additions)


def _facts(config: RunConfig, table: Table) -> PublicFacts:
    """Return the public facts about the table, which the user declared."""
    return PublicFacts(
        config.unit,
        config.label_set,
        config.expected_records,
        COLUMN if config.topics else table.label,
        () if table.record_columns else table.typed_columns,
        tuple(column for column in table.all_columns if column.name != table.owner),
        table.crossed,
        (*table.text_columns, *table.record_columns),
    )
