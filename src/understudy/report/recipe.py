"""The configuration of a run, as far as its public half tells: for ``understudy run --config``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import yaml

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.evaluate.synthetic import SyntheticText
from understudy.methods.base import Method, Needs
from understudy.methods.registry import method_class
from understudy.privacy.exact import as_typed
from understudy.privacy.guarantee import SecretBudget
from understudy.privacy.unit import Unit
from understudy.release import PublicSchema, Release
from understudy.run.settings import RunConfig


def recipe(release: Release, texts: Sequence[SyntheticText]) -> str:
    """YAML: the columns, the unit, the budget, the method's parameters where they are not its defaults, how many texts
    and by which model.

    What is private is not in it: the data, and what tells secrets. Nor is what neither the Release nor the table
    tells: how texts were written.
    """
    statement = release.statement
    fields = {
        "dataset": statement.dataset,
        **_columns(release.schema, declared=statement.labels_declared),
        **_unit(statement.unit),
        **_budget(statement.budget),
        "method": release.method,
        **_parameters(release),
        **_writing(release, texts),
    }
    text: str = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100, default_flow_style=None)
    return text


def _columns(schema: PublicSchema, *, declared: bool) -> dict[str, Any]:
    texts = schema.texts
    typed = [column.to_json() for column in schema.columns]
    columns = {"columns": {fields.pop("name"): fields for fields in typed}} if typed else {}
    if schema.label is None:
        return {**texts, **columns}
    labels = {"labels": list(schema.labels)} if declared else {"labels_from_data": True}
    return {**texts, "label": schema.label, **({} if schema.crossed else labels), **columns}


def _unit(unit: Unit) -> dict[str, Any]:
    if unit.kind == "owner":
        return {"owner": unit.column, "max_records_per_owner": unit.max_records}
    return {"max_records_per_secret": unit.max_records} if unit.kind == "secret" else {}


def _budget(budget: Any) -> dict[str, str]:
    if isinstance(budget, SecretBudget):
        return {"secret_prior": as_typed(budget.prior), "secret_posterior": as_typed(budget.posterior)}
    return {"epsilon": as_typed(budget.epsilon), "delta": as_typed(budget.delta)}


def _parameters(release: Release) -> dict[str, Any]:
    """Those that differ from the method's defaults; all that are set where the method is not installed here."""
    method = _method(release)
    known = Parameters if method is None else method.parameters
    defaults = {name: field.get_default(call_default_factory=True) for name, field in known.model_fields.items()}
    return {
        name: value
        for name, value in RunConfig.stored(known.stored(release.parameters)).items()
        if value is not None and (name not in defaults or value != _plain(defaults[name]))
    }


def _writing(release: Release, texts: Sequence[SyntheticText]) -> dict[str, Any]:
    """How many texts and by which model; nothing of a method whose Release holds the texts itself."""
    method = _method(release)
    needs = Needs() if method is None else method.needs
    if not texts or needs.holds_texts:
        return {}
    counts, labels = Counter(text.label for text in texts), release.schema.labels
    if release.schema.label is not None and len(set(counts.values())) == 1 and len(counts) == len(labels):
        asked: dict[str, Any] = {"records_per_label": counts[texts[0].label]}
    else:
        asked = {"records": len(texts)}
    models = {text.model for text in texts}
    if all(text.bare for text in texts):
        return {**asked, "llm": "none"}
    if len(models) != 1 or models == {""}:  # the table does not tell
        return asked
    (model,) = models
    flag = "private_model" if needs.generation_model else "llm"
    return {**asked, flag: "builtin" if model.startswith("builtin:") else model}


def _method(release: Release) -> type[Method] | None:
    """None where it is not installed here."""
    try:
        return method_class(release.method)
    except ConfigError:
        return None


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
