"""A configuration resolved once: the parts of a run, each checked as it is made. Every step takes those it needs.

Whatever public facts can tell is told here, before a folder is touched, a model is loaded or anything is charged.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from understudy.base.errors import ConfigError
from understudy.base.labels import LabelSet
from understudy.base.transcript import PLAIN, TextForm
from understudy.methods.base import Method
from understudy.methods.public import PublicFacts
from understudy.methods.registry import make_method
from understudy.methods.shared.guide.plan import GUIDE_SHARE, plan_with_guide
from understudy.methods.shared.labelling import COLUMN
from understudy.methods.shared.tables.plan import plan_with_columns
from understudy.methods.shared.tables.variables import COLUMNS_SHARE, TablesParameters
from understudy.methods.topics.plan import plan_with_topics
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release.statement import require_readable_charges
from understudy.run import settings
from understudy.run.decided import GuideDecision, TopicsDecision, fitted, settled, taken_for_foreign, with_delta
from understudy.run.parts import Chat, PrivateModel, Promise, PublicEmbedder, Table, Texts, Wanted, no_label_counts
from understudy.run.session import Lasting
from understudy.run.settings import RunConfig
from understudy.text.prompts.template import WritingParameters
from understudy.text.vocabulary.terms import BUILT_IN


class FreeJob:
    """What is written without a private table: of a Release, or of nothing but labels.

    Args:
        config: as flags, YAML or Python give it; nobody sees it after this.
        form: the parts that texts have.
        guide, columns: whether the Release has, or is to have, a guide and typed columns.
        topics: whether its labels are topics.
        labels: how many it has; None: as the configuration declares.
        foreign: whether the texts are taken not to be English.
        releases, generates: whether a Release is made, and texts of it.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        form: TextForm = PLAIN,
        guide: bool = False,
        columns: bool = False,
        topics: bool = False,
        labels: int | None = None,
        foreign: bool = False,
        releases: bool = False,
        generates: bool = True,
    ) -> None:
        config = config.model_copy(update={"guide": bool(config.guide)})
        labels = config.label_set.size if labels is None else labels
        self.method = make_method(config.method, config.method_parameters)
        self.decided: tuple[str, ...] = ()
        if generates:
            shares = columns or topics  # the Release knows which
            config, self.decided = settled(config, self.method, labels=labels, shares=shares, form=form)
        self.wanted = config.part(Wanted)
        labelled = (config.label is not None or labels > 1) and not (guide or columns or topics)
        if generates and self.wanted.like_private and labelled and not self.method.counts_labels:
            raise no_label_counts(self.method)
        if generates:
            self.wanted.require(self.method, labels=labels, guide=guide, columns=columns)
        self.texts = Texts(config.part(WritingParameters), form, config.record_columns, foreign)
        self.chat = Chat.of(config, self.method, self.texts, releases=releases, generates=generates)
        self.embedder = config.part(PublicEmbedder)
        self.private_model = config.part(PrivateModel)
        self.place = config.part(settings.OutputParameters)
        self.dataset = config.dataset
        self.lasting = Lasting(config.lasting, config.changeable, config.without_gone)
        _require_utf8({**self.lasting.settings, "dataset": self.dataset})


class Job(FreeJob):
    """What is released of a private table, and written of it.

    Args:
        config: as flags, YAML or Python give it; nobody sees it after this.
        charges: whether the ledger is charged, in which the dataset then has a name.
        generates: whether texts are made; None: if it is said how many.
    """

    def __init__(self, config: RunConfig, *, charges: bool = False, generates: bool | None = None) -> None:
        config, delta = with_delta(config)
        self.topics_decision = TopicsDecision.of(config)
        config = self.topics_decision.applied(config)
        self.topics, self.label_set = config.topics is not None, config.label_set
        self.table = Table.of(config)
        self.foreign = taken_for_foreign(config, self.table)
        config, line = fitted(config, self.table)
        self.fitted_line = " ".join(filter(None, (delta, line)))
        self.guide_decision = GuideDecision.of(config, self.table)
        config = config.model_copy(update={"guide": self.guide_decision.on})
        super().__init__(
            config,
            form=config.form,
            guide=self.guide_decision.on,
            columns=config.columns is not None,
            topics=self.topics,
            foreign=self.foreign,
            releases=True,
            generates=config.part(Wanted).said if generates is None else generates,
        )
        self.promise = Promise.of(config, self.method, charges=charges)
        if self.topics:
            _require_labels_anew(self.method)
            self.method.require_guidable()
            self.table.require_no(COLUMN)
        if self.promise.guide or self.table.columns:
            self.method.require_guidable()
        self.engine = config.part(settings.EngineParameters)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What public facts warn of."""
        method = self.method
        english = getattr(method, "vocabulary", "") == BUILT_IN and not getattr(method, "discover_terms", True)
        return (*self.promise.warnings, *([_ENGLISH] * (english and self.foreign and self.table.looks_foreign)))

    def plan(self, labels: LabelSet | None = None) -> Plan:
        """What is released and charged, with the table's labels or the declared ones. Reads no private data."""
        method, promise, table = self.method, self.promise, self.table
        beside = () if table.record_columns else table.typed_columns
        facts = PublicFacts(promise.unit, labels or self.label_set, promise.expected_records, beside)

        def plan_text(rest: Budget | SecretBudget) -> Plan:
            """The method, and its guide if there is to be one."""
            if not promise.guide:
                return method.plan(rest, facts)
            return plan_with_guide(
                lambda left: method.plan(left, facts),
                rest,
                share=GUIDE_SHARE,
                labels=facts.labels.size,
                expected_records=facts.expected_records,
                unit=facts.unit,
            )

        def plan_table(rest: Budget | SecretBudget) -> Plan:
            """The same, with the typed columns if there are any."""
            variables = table.variables(facts.labels)
            if variables is None:
                return plan_text(rest)
            return plan_with_columns(
                plan_text,
                rest,
                variables=variables,
                parameters=promise.part(TablesParameters),
                share=COLUMNS_SHARE,
                expected_records=facts.expected_records,
            )

        if self.topics:
            plan = plan_with_topics(plan_table, promise.budget, topics=facts.labels.size, unit=facts.unit)
        else:
            plan = plan_table(promise.budget)
        require_readable_charges(plan.charges)
        return plan

    @cached_property
    def declared_plan(self) -> Plan:
        """The plan with the declared labels."""
        return self.plan()

    @property
    def embeds_private_texts(self) -> bool:
        return self.promise.guide or self.topics or self.method.needs.embedder


def _require_labels_anew(method: Method) -> None:
    """Raises ConfigError for a method whose charges need a record to keep its label.

    A topic is computed in each session, and another machine, or another model behind an endpoint's name, may round
    otherwise: the record would count for two labels under a charge that pays for one.
    """
    if method.labels_in_parallel:
        raise ConfigError(
            f"Topics cannot be the labels of {method.name}: one charge pays for all its labels, because a record keeps "
            "its own, and its topic is computed anew whenever a run is resumed.",
            "Take another method (dp-kps, aug-pe, dp-finetune), or declare labels (--label, --labels).",
        )


_ENGLISH = (
    "Few names of the columns and labels are English words, and the built-in vocabulary is English: if the texts "
    "are in another language too, what comes out is noise whatever the budget. Name a list of their words with "
    "--vocabulary, or let --discover-terms 0.3 find them (docs/languages.md)."
)


def _require_utf8(settings: Mapping[str, Any]) -> None:
    """Names of files may hold bytes that are no text, and JSON halves of characters: no statement can name those."""
    for name, value in settings.items():
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(
                f"The setting {name!r} holds characters that UTF-8 cannot write.",
                "Write it, or name the file, in whole characters of UTF-8.",
            ) from None
