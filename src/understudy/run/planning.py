"""Before anything is read or asked: the plan, and how many records of which label are wanted."""

from __future__ import annotations

import math

from understudy.base.columns import cross_labels, require_own_names
from understudy.base.errors import ConfigError
from understudy.base.labels import LabelSet, canonical
from understudy.base.transcript import text_columns
from understudy.corpus.labels import declared_labels, undeclared
from understudy.corpus.schema import require_told
from understudy.methods.public import PublicFacts
from understudy.methods.registry import make_method, method_class
from understudy.methods.shared.guide.parameters import GuideParameters
from understudy.methods.shared.guide.plan import plan_with_guide
from understudy.methods.shared.tables.parameters import TablesParameters
from understudy.methods.shared.tables.plan import plan_with_columns
from understudy.methods.shared.tables.variables import Variables
from understudy.models.presets import preset_of
from understudy.privacy.exact import as_typed
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Plan
from understudy.privacy.secrets.budget import SecretBudget
from understudy.release.statement.form import require_readable_charges
from understudy.run.outputs import LABEL, PROVENANCE, TRANSCRIPT
from understudy.run.settings import MOST_RECORDS, RunConfig


def make_plan(config: RunConfig, *, labels: LabelSet | None = None) -> Plan:
    """The plan of a configured run, with the table's labels or the declared ones. Reads no private data.

    Raises ConfigError if the configuration cannot be run.
    """
    method = make_method(config.method, config.method_parameters)
    budget = config.budget
    if not method.private and not config.insecure_no_noise:
        raise ConfigError(
            f"The method {config.method} protects nobody: it is a yardstick without privacy.",
            "Say so with --insecure-no-noise, which stamps all that it makes NOT PRIVATE.",
        )
    if isinstance(budget, SecretBudget) and not method.protects_secrets:
        raise ConfigError(
            f"The method {config.method} promises (epsilon, delta), not secret protection.",
            "Give --epsilon and --delta, or choose --method sec-pe or aug-pe.",
        )
    if config.unit.kind == "secret":
        _check_recognisers(config)
    _check_form(config)
    if config.label is not None and not (labels or config.labels or config.crossed or config.labels_from_data):
        raise undeclared(config.label, config.all_columns)
    beside = () if config.record_columns else config.typed_columns
    facts = PublicFacts(config.unit, labels or declared_label_set(config), config.expected_records, beside)
    if not config.guide and config.guide_share != GuideParameters().guide_share:
        raise ConfigError("A share is named for a guide, and none is to be made.", "Add --guide, or leave it out.")
    variables = variables_of(config, facts.labels)
    if config.guide or variables is not None:
        method.require_guidable()

    def plan_text(rest: Budget | SecretBudget) -> Plan:
        """The method, and its guide if there is to be one."""
        if not config.guide:
            return method.plan(rest, facts)
        return plan_with_guide(
            lambda left: method.plan(left, facts),
            rest,
            share=config.guide_share,
            labels=facts.labels.size,
            expected_records=facts.expected_records,
        )

    if variables is None:
        plan = plan_text(budget)
    else:
        plan = plan_with_columns(
            plan_text,
            budget,
            variables=variables,
            parameters=config.part(TablesParameters),
            expected_records=facts.expected_records,
        )
    require_readable_charges(plan.charges)
    return plan


def variables_of(config: RunConfig, labels: LabelSet) -> Variables | None:
    """The label and the typed columns of the configured table; None without typed columns.

    Raises ConfigError if something is asked of columns, and none is declared.
    """
    columns, asked = config.all_columns, config.part(TablesParameters)
    if not columns and asked != TablesParameters():
        raise ConfigError(
            "Settings of typed columns are given, and no columns.", "Declare them with --columns, or leave these out."
        )
    if config.crossed and labels.names != cross_labels(config.crossed):
        raise ConfigError(
            "The label is made of typed columns, and its labels are declared a second time.",
            "Leave --labels out: the columns' own values are the labels.",
        )
    label = None if config.crossed else config.label
    require_own_names(columns, (*config.read_columns, label, config.owner, *config.secrets))
    return Variables(config.label, labels, columns, config.crossed) if columns else None


def _check_form(config: RunConfig) -> None:
    """That the columns of texts with parts can be written beside those that every table has."""
    form = config.form
    if not form:
        return
    if config.record_columns:
        raise ConfigError(
            "The parts of a text are columns of their own, and record columns are one text of JSON.",
            "Give --text A,B,C or --record-columns A,B,C.",
        )
    require_told(form, config.all_columns, crossed=config.crossed)
    texts = text_columns(config.text)
    if taken := sorted({*texts}.intersection((TRANSCRIPT, LABEL, PROVENANCE))):
        raise ConfigError(
            f"A text column is called {taken[0]!r}, as a column that is written besides.", "Rename it in the table."
        )
    if TRANSCRIPT in {column.name for column in config.all_columns}:
        raise ConfigError(
            f"A typed column is called {TRANSCRIPT!r}, as a column that is written besides.", "Rename it in the table."
        )


def _check_recognisers(config: RunConfig) -> None:
    """That something tells the secrets, and the detectors are known."""
    from understudy.corpus.secrets import make_detectors

    if config.unit.recognised_by is None:
        raise ConfigError(
            "It is not said what the secrets are.",
            "Name columns (--secrets), a file (--secrets-file), or detectors (--secret-detectors).",
        )
    make_detectors(config.secret_detectors)


def declared_label_set(config: RunConfig) -> LabelSet:
    """The declared labels; none without labels, or if they are to be read from the data."""
    declared = () if config.labels is None else declared_labels(config.labels)
    return LabelSet(tuple(canonical(label) for label in declared))


def require_language_model(config: RunConfig, *, releases: bool, generates: bool) -> None:
    """See that there is a language model where a release, or generating, cannot do without; else ConfigError."""
    needs = method_class(config.method).needs
    asks = (releases and needs.candidates) or (generates and needs.generation_llm == "always")
    if asks and config.llm == "none":
        raise ConfigError(
            f"The method {config.method} needs a language model that writes texts, and there is none.",
            "Name one with --llm; it never sees a private text.",
        )


def require_batches(config: RunConfig) -> None:
    """See that a language model that is to be asked through batches has some; else ConfigError."""
    preset = preset_of(config.llm)
    if config.llm_batch and (preset is None or not preset.batches):
        raise ConfigError(
            f"The language model {config.llm} has no batches.",
            "Leave --llm-batch out, or name a model that has some: openai:NAME.",
        )


def batches_in_a_row(config: RunConfig) -> int:
    """Batches of which each waits for the one before, at least: one, and one more for each round of an evolution and
    each repair."""
    own = make_method(config.method, config.method_parameters).dump()
    rounds = own.get("rounds")
    return 1 + (rounds if isinstance(rounds, int) else 0) + config.repair


def waiting_in_a_row(batches: int) -> str:
    """A warning that batches depend on each other."""
    return (
        f"Rounds and repairs wait for the answers before them: {batches} batches one after another, each within a day. "
        "Without --llm-batch the answers come at once."
    )


_WEAK_EPSILON = 20


def weak_promises(config: RunConfig, budget: Budget | SecretBudget) -> tuple[str, ...]:
    """Warnings of a budget that promises next to nothing: a large epsilon, or a delta with which publishing each record
    with that probability publishes one or more."""
    if isinstance(budget, SecretBudget) or config.insecure_no_noise:
        return ()
    warnings, expected = [], config.expected_records
    if budget.epsilon >= _WEAK_EPSILON:
        warnings.append(
            f"Epsilon is {as_typed(budget.epsilon)}: the probability of an outcome may be "
            f"{math.exp(min(float(budget.epsilon), 700)):.0e} times that without a given {config.unit.kind}, which is "
            "next to no protection. Choose 10 or less."
        )
    if expected is not None and budget.delta * expected >= 1:
        warnings.append(
            f"Delta is at least 1 over the number of records: publishing each of the {expected} as it is with "
            f"probability {float(budget.delta):.3g} would keep this promise too. Choose a far smaller delta."
        )
    return tuple(warnings)


def require_name(config: RunConfig) -> None:
    """See that the dataset is named where several files are given (else ConfigError): no stem names all of them."""
    if config.dataset is None and len(config.data) > 1:
        raise ConfigError(
            "Several files are given, and the dataset that they are together has no name for the ledger.",
            "Name it with --dataset NAME.",
        )


def check_wanted(config: RunConfig) -> None:
    """See that it is said how many records are wanted, before anything is done.

    Raises ConfigError: as :func:`wanted`; a method whose Release holds the texts itself needs no number.
    """
    says = config.records is not None or config.records_per_label is not None
    labels = declared_label_set(config).size
    if says and sum(wanted(config, labels)) * (config.guide_candidates or 1) > MOST_RECORDS:
        raise ConfigError(
            f"More than {MOST_RECORDS} candidates would be made.", "Ask for fewer records or --guide-candidates."
        )
    if says or not method_class(config.method).needs.holds_texts:
        wanted(config, labels)


def wanted(config: RunConfig, labels: int) -> list[int]:
    """Synthetic records of each label.

    Raises ConfigError if it is not exactly one of ``records`` and ``records_per_label`` that says so, or too many.
    """
    if (config.records is None) == (config.records_per_label is None):
        raise ConfigError(
            "It is not clear how many records to write.", "Give one of --records-per-label N and --records N."
        )
    if config.records_per_label is not None:
        if (asked := config.records_per_label * labels) > MOST_RECORDS:
            raise ConfigError(
                f"{asked} synthetic records are asked for, and {MOST_RECORDS} are the most.",
                "Ask for fewer; `understudy generate` makes more of the same Release with another --seed.",
            )
        return [config.records_per_label] * labels
    assert config.records is not None
    return [config.records // labels + (label < config.records % labels) for label in range(labels)]
