"""Write the tables of parameters into the pages, and the typed keywords of the verbs, from the parameters' docstrings.

    python docs/described.py

tests/test_docs.py checks that all are current.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from understudy.audit.running import AuditParameters
from understudy.base.parameters import Parameters
from understudy.evaluate.parameters import ChargeParameters, EvaluationParameters, ResultParameters
from understudy.evaluate.tables import EvaluationConfig
from understudy.methods.additions.columns.variables import RowsParameters
from understudy.methods.additions.guide.plan import ChoosingParameters, GuideParameters
from understudy.methods.aug_pe.plan import AugPEParameters
from understudy.methods.dp_finetune.plan import DPFinetuneParameters
from understudy.methods.dp_kde.plan import DPKDEParameters
from understudy.methods.dp_kps.plan import DPKPSParameters
from understudy.methods.few_shot.plan import FewShotParameters
from understudy.methods.guided_evolution.plan import GuidedEvolutionParameters
from understudy.methods.private_prediction.plan import PrivatePredictionParameters
from understudy.methods.registry import method_class, method_names
from understudy.methods.sec_pe.plan import ReleaseParameters
from understudy.methods.seq_pate.plan import SeqPATEParameters
from understudy.run.baseline import BaselineParameters
from understudy.run.settings import (
    RUN_GROUPS,
    WRITING_GROUPS,
    EmbedderParameters,
    OutputParameters,
    RunConfig,
    SigningParameters,
)

ROOT = Path(__file__).parent.parent
DOCS, STUB = ROOT / "docs", ROOT / "src" / "understudy" / "options.pyi"
BEGIN, END = "<!-- parameters -->\n", "<!-- end of parameters -->\n"

PAGES: dict[str, tuple[type[Parameters], ...]] = {
    "dp-kps.md": (DPKPSParameters,),
    "dp-kde.md": (DPKDEParameters,),
    "aug-pe.md": (AugPEParameters,),
    "sec-pe.md": (ReleaseParameters,),
    "guided-evolution.md": (GuidedEvolutionParameters,),
    "few-shot.md": (FewShotParameters,),
    "private-prediction.md": (PrivatePredictionParameters,),
    "dp-finetune.md": (DPFinetuneParameters,),
    "seq-pate.md": (SeqPATEParameters,),
    "guide.md": (GuideParameters, ChoosingParameters),
    "evaluation.md": (EvaluationParameters, ChargeParameters, ResultParameters),
}
"""The groups of parameters that a page has a table of."""
_BUDGET = {"epsilon", "delta", "secret_prior", "secret_posterior", "method", "method_parameters"}
_FILES = {"data", "format", "delimiter", "quotes", "encoding", "max_bad_rows"}
_FREE = [method_class(name).generation_parameters for name in sorted(method_names())]
VERBS: dict[str, tuple[str, list[type[Parameters]], set[str]]] = {
    "WritingOptions": ("TypedDict", [*WRITING_GROUPS, OutputParameters], set()),
    "PlanOptions": ("WritingOptions", [RunConfig], _FILES | _BUDGET),
    "RunOptions": ("PlanOptions", [RunConfig], {"data", *_BUDGET}),
    "AuditOptions": ("RunOptions", [AuditParameters, RunConfig], {"data", *_BUDGET}),
    "GenerateOptions": (
        "WritingOptions",
        [
            *WRITING_GROUPS,
            EmbedderParameters,
            ChoosingParameters,
            RowsParameters,
            OutputParameters,
            SigningParameters,
            *_FREE,
        ],
        set(),
    ),
    "BaselineOptions": ("WritingOptions", [*WRITING_GROUPS, OutputParameters, BaselineParameters], set()),
    "EvaluateOptions": ("TypedDict", [EvaluationConfig], set()),
}
"""The typed keywords of a verb, or of several: which they extend, its groups of parameters, and what it takes
otherwise."""
_IN_MEMORY = {
    "holdout": "Corpus | TableSource | None",
    "recipient": "Corpus | TableSource | None",
    "beside": "str | Sequence[str] | Mapping[str, Corpus | Result | TableSource]",
    "charge_metrics": "Number | None",
}
_HEAD = '''"""The typed keywords of the verbs. Made by `python docs/described.py` from the parameters' models."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from understudy.corpus import Corpus, TableSource
from understudy.privacy.exact import Number
from understudy.run.generating import Result
'''


def tables(first: dict[tuple[str, str], str]) -> str:
    """One list per group, as the page of all parameters has them."""
    made = []
    for group in RUN_GROUPS:
        title = (group.__doc__ or "").split("\n")[0].rstrip(".")
        made.append(f"**{title}**\n\n{table((group,), 'configuration.md', first)}\n")
    return "".join(made)


def table(groups: Sequence[type[Parameters]], page: str, first: dict[tuple[str, str], str]) -> str:
    """List the parameters of these groups, a line each, with their defaults.

    ``first`` says on which page a name and its line were listed first: there is only a link to the others.
    """
    rows, listed, elsewhere, flagless = list[str](), set[str](), dict[str, list[str]](), list[str]()
    for group in groups:
        for name, field in group.model_fields.items():
            line = f"`{name}`{_shown(field.get_default())}: {_linked(field)}"
            new = (name, line) not in first
            where = first.setdefault((name, line), page)
            if where != page:
                elsewhere.setdefault(where, []).append(f"`{name}`")
            elif new and name not in listed:
                rows.append(f"- {line}\n")
                listed.add(name)
                if name not in group.flags():
                    flagless.append(f"`{name}`")
    ends = []
    for where, names in elsewhere.items():
        anchor = "every-parameter" if where == "configuration.md" else "the-parameters"
        ends.append(f"As on [{where[:-3]}]({where}#{anchor}): {', '.join(names)}.")
    if flagless:
        ends.append(f"In YAML and Python only: {', '.join(flagless)}.")
    return "\n".join(["".join(rows), *(f"{end}\n" for end in ends)]).lstrip("\n")


def _shown(default: Any) -> str:
    if default is False or default in (None, (), ""):
        return ""
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    return f" (`{str(default).lower() if default is True else default}`)"


def _linked(field: FieldInfo) -> str:
    text = " ".join((field.description or "").replace("``", "`").split())
    return re.sub(r"\bdocs/([\w-]+)\.md", r"[\1](\1.md)", text)


def stub() -> str:
    """The typed keywords."""
    made, lines = [_HEAD], dict[str, dict[str, str]]()
    for name, (base, groups, elsewhere) in VERBS.items():
        fields = {each: field for group in groups for each, field in group.model_fields.items()}
        lines[name] = {each: _typed(each, field) for each, field in fields.items() if each not in elsewhere}
        own = lines[name].keys() - lines.get(base, {}).keys()
        made.append(f"\nclass {name}({base}, total=False):\n")
        made += [f"    {each}: {kind}\n" for each, kind in lines[name].items() if each in own]
    return "".join(made)


def _typed(name: str, field: FieldInfo) -> str:
    """What a caller may give: also files as paths, several of a kind as any sequence, and one string for them."""
    if name in _IN_MEMORY:
        return _IN_MEMORY[name]
    kinds = _kinds(field.annotation)
    if several := next((each for each in kinds if each.startswith("Sequence")), None):
        one = several.removeprefix("Sequence[").removesuffix("]")
        kinds = [*([one] if one in ("int", "float") else []), "str", *kinds]
    if kinds == ["str", "None"]:
        kinds = ["str", "PathLike[str]", "None"]
    return " | ".join(dict.fromkeys(kinds))


def _kinds(annotation: Any) -> list[str]:
    origin, inside = get_origin(annotation), get_args(annotation)
    if annotation is NoneType:
        return ["None"]
    if origin is Annotated:
        return _kinds(inside[0])
    if origin is Literal:
        return [f"Literal[{', '.join(map(repr, inside))}]".replace("'", '"')]
    if origin is tuple:
        return [f"Sequence[{' | '.join(_kinds(inside[0]))}]"]
    if origin is dict:
        return ["Mapping[str, Any]"]
    if inside:  # a union
        return [kind for each in inside for kind in _kinds(each)]
    return [annotation.__name__]


def pages() -> dict[Path, str]:
    """Every page with its tables."""
    first = dict[tuple[str, str], str]()
    made = {"configuration.md": f"\n{tables(first)}"}
    made |= {name: f"\n{table(groups, name, first)}\n" for name, groups in PAGES.items()}
    return {DOCS / name: _between(DOCS / name, text) for name, text in made.items()}


def _between(path: Path, made: str) -> str:
    before, rest = path.read_text("utf-8").split(BEGIN)
    return f"{before}{BEGIN}{made}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    for path, text in {**pages(), STUB: stub()}.items():
        path.write_text(text, "utf-8")
