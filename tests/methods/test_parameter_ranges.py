"""Numbers that are none, or out of every range, are one clear error wherever they may be given."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.evaluate.parameters import EvaluationParameters
from understudy.methods.registry import method_class, method_names
from understudy.run.settings import RunConfig

MODELS: dict[str, type[Parameters]] = {
    **{name: method_class(name).parameters for name in method_names()},
    "run": RunConfig,
    "evaluate": EvaluationParameters,
}
BUDGETS = {"epsilon", "delta", "secret_prior", "secret_posterior"}  # read by the budget, exactly
NONE: dict[str, Any] = {
    "true": True,
    "NaN": math.nan,
    "infinity": math.inf,
    "minus one": -1,
    "huge": 10**30,
    "word": "many",
}


def numbers(model: type[Parameters]) -> list[str]:
    """Fields that take one number, or one per round."""
    found = []
    for name, field in model.model_fields.items():
        kinds = {field.annotation, *get_args(field.annotation)}
        inner = {kind for each in kinds for kind in get_args(each)}
        if (kinds | inner) & {int, float} and bool not in kinds | inner and name not in BUDGETS:
            found.append(name)
    return found


@pytest.mark.parametrize("value", NONE)
@pytest.mark.parametrize("model", MODELS)
def test_what_is_no_number_in_range_is_refused_for_every_parameter(model: str, value: str) -> None:
    names = numbers(MODELS[model])
    assert names
    for name in names:
        if (model, name, value) == ("topics", "topics", "word"):
            continue  # a Release's file
        with pytest.raises(ConfigError, match=name) as caught:
            MODELS[model](**{name: NONE[value]})
        assert caught.value.cure
