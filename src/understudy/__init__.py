"""understudy: differentially private synthetic stand-ins for private text corpora.

>>> import understudy as us
>>> us.Budget(6, "1e-6")
Budget(epsilon=Fraction(6, 1), delta=Fraction(1, 1000000))

Everything below loads when it is first used, so that ``import understudy`` is light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "AugPE": "understudy.methods.aug_pe.method",
    "Budget": "understudy.privacy.guarantee",
    "Corpus": "understudy.corpus",
    "DPKPS": "understudy.methods.dp_kps.method",
    "FewShot": "understudy.methods.few_shot.method",
    "Listener": "understudy.run",
    "PrivatePrediction": "understudy.methods.private_prediction.method",
    "Release": "understudy.release",
    "Result": "understudy.run",
    "SecPE": "understudy.methods.sec_pe.method",
    "SecretBudget": "understudy.privacy.secrets.budget",
    "Statement": "understudy.statement",
    "UnderstudyError": "understudy.errors",
    "UnderstudyWarning": "understudy.errors",
    "evaluate": "understudy.assess.evaluate",
    "generate": "understudy.run",
    "load_release": "understudy.methods.registry",
    "plan": "understudy.api",
    "read_corpus": "understudy.corpus",
    "release_corpus": "understudy.run",
    "synthesize": "understudy.run",
    "zero_shot": "understudy.run.baseline",
}

if TYPE_CHECKING:
    from understudy.api import plan
    from understudy.assess.evaluate import evaluate
    from understudy.corpus import Corpus, read_corpus
    from understudy.errors import UnderstudyError, UnderstudyWarning
    from understudy.methods.aug_pe.method import AugPE
    from understudy.methods.dp_kps.method import DPKPS
    from understudy.methods.few_shot.method import FewShot
    from understudy.methods.private_prediction.method import PrivatePrediction
    from understudy.methods.registry import load_release
    from understudy.methods.sec_pe.method import SecPE
    from understudy.privacy.guarantee import Budget
    from understudy.privacy.secrets.budget import SecretBudget
    from understudy.release import Release
    from understudy.run import Listener, Result, generate, release_corpus, synthesize
    from understudy.run.baseline import zero_shot
    from understudy.statement import Statement

__all__ = [
    "DPKPS",
    "AugPE",
    "Budget",
    "Corpus",
    "FewShot",
    "Listener",
    "PrivatePrediction",
    "Release",
    "Result",
    "SecPE",
    "SecretBudget",
    "Statement",
    "UnderstudyError",
    "UnderstudyWarning",
    "evaluate",
    "generate",
    "load_release",
    "plan",
    "read_corpus",
    "release_corpus",
    "synthesize",
    "zero_shot",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'understudy' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
