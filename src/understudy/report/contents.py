"""What a page shows, and where it may come from: :func:`shareable` is given the shareable folder and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from understudy.assess.synthetic import SyntheticText, read_synthetic, require_measured_on
from understudy.errors import ConfigError
from understudy.methods.registry import load_release
from understudy.metrics.evaluation import Evaluation, load_evaluation
from understudy.metrics.form import EvaluationForm
from understudy.metrics.picture import Picture
from understudy.metrics.value import Figure
from understudy.models.types import Embedder
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Charge
from understudy.release import Release
from understudy.report.audited import Audited, read_audit
from understudy.report.intrinsic import summarise
from understudy.statement import Statement
from understudy.statement.form import ChargeForm, Exact, load_statement
from understudy.untrusted import Form, read_json


class ChargedForm(Form):
    """What ``release/metrics.json`` holds."""

    budget: dict[str, Exact]
    private: bool
    charges: list[ChargeForm]
    evaluation: EvaluationForm
    run: str = ""
    table_sha256: str | None = None


@dataclass(frozen=True)
class Charged:
    """Figures of private texts that were released with noise, and what that cost; ``private`` False: noise was off.

    ``run`` names them in the ledger; empty where the file does not say.
    """

    budget: Budget
    private: bool
    charges: tuple[Charge, ...]
    figures: tuple[Figure, ...]
    run: str = ""


@dataclass(frozen=True)
class Contents:
    """All that one page shows.

    Args:
        internal: whether anything in it was computed on private texts without a charge.
        statement: the promise.
        release: the Release, where it stands beside the statement.
        texts: the synthetic table.
        figures: what was measured.
        picture: what the tables look like; None where there are no texts.
        no_map: why there is no map; empty where there is one.
        charged: None where no figure was paid for.
        settings: how the figures were measured.
        audit: the audit of the run; None where there was none.
    """

    internal: bool
    statement: Statement
    release: Release | None
    texts: tuple[SyntheticText, ...]
    figures: tuple[Figure, ...]
    picture: Picture | None
    no_map: str
    charged: Charged | None
    settings: Mapping[str, Any]
    audit: Audited | None = None

    @property
    def promises(self) -> bool:
        """Whether everything that was released had its noise."""
        return self.statement.private and (self.charged is None or self.charged.private)


def shareable(release: Path, *, embedder: Embedder | None, seed: int) -> Contents:
    """What may be handed out: the statement, the Release, the synthetic texts, what is computed of them, and what was
    paid for.

    Args:
        release: the shareable folder of a run. Nothing else is read.
        embedder: of topics and the map; None: they go by the words of the texts.
        seed: of the map and of samples.

    Raises:
        ConfigError: if the folder is none of a run, or what is in it cannot be read.
    """
    statement, texts = read_statement(release), read_synthetic(release)
    alone = summarise(texts, embedder=embedder, seed=seed)
    return Contents(
        internal=False,
        statement=statement,
        release=_read_release(release, statement.method),
        texts=texts,
        figures=alone.figures,
        picture=alone.picture,
        no_map=alone.no_map,
        charged=read_charged(release),
        settings={},
    )


def internal(public: Contents, release: Path, private: Path) -> Contents | None:
    """The same with all that was measured on private texts; None where nothing was, or it may not be read.

    Args:
        public: what may be handed out.
        release: the shareable folder of the run.
        private: its private folder.

    Raises:
        ConfigError: if what is in it cannot be read, or was measured on another table.
    """
    evaluated, audited = private / "evaluation.json", private / "audit.json"
    if not os.access(private, os.R_OK | os.X_OK) or not (evaluated.exists() or audited.exists()):
        return None
    evaluation = read_evaluation(release, evaluated) or Evaluation((), None, {})
    return replace(
        public,
        internal=True,
        figures=evaluation.figures or public.figures,
        picture=evaluation.picture or public.picture,
        settings=evaluation.settings,
        audit=read_audit(audited) if audited.exists() else None,
    )


def read_statement(release: Path) -> Statement:
    """The statement in a shareable folder.

    Raises:
        ConfigError: if there is none, or it cannot be read.
    """
    path = release / "statement.json"
    if not path.is_file():
        raise ConfigError(
            f"{release.parent.name or release} is no folder of a run: it holds no release/{path.name}.",
            "Name the folder that was the --output of `understudy run`, `release` or `generate`.",
        )
    return load_statement(path)


def _read_release(release: Path, method: str) -> Release | None:
    path = release / f"{method}.release"
    return load_release(path) if path.exists() else None


def read_evaluation(release: Path, path: Path) -> Evaluation | None:
    """What was measured of the table in ``release``; None where there is no such file.

    Raises:
        ConfigError: if it cannot be read, or is of another table.
    """
    if not path.exists():
        return None
    evaluation = load_evaluation(path)
    require_measured_on(release, evaluation.settings.get("table_sha256"), path)
    return evaluation


def read_charged(release: Path) -> Charged | None:
    """What ``release/metrics.json`` holds; None where there is no such file.

    Raises:
        ConfigError: if it cannot be read, or is of another table.
    """
    path = release / "metrics.json"
    if not path.exists():
        return None
    try:
        fields = read_json(path)
        ChargedForm.model_validate(fields)
        charges = tuple(Charge.from_json(each) for each in fields["charges"])
        figures = Evaluation.from_json(fields["evaluation"]).figures
        charged = Charged(
            Budget.from_json(fields["budget"]), fields["private"], charges, figures, fields.get("run", "")
        )
    except Exception:  # a stranger's file fails in many ways
        raise ConfigError(
            f"{path.name} cannot be read: it is damaged or was made by another version.",
            "Make it anew with `understudy evaluate --charge-metrics`.",
        ) from None
    require_measured_on(release, fields.get("table_sha256"), path)
    return charged
