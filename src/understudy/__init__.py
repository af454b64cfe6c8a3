"""Turn a private table of texts into a differentially private synthetic one.

>>> import understudy as us
>>> rows = [{"note": "a sore hip", "part": "hip"}, {"note": "a warm hand", "part": "hand"}]
>>> made = us.run(rows, us.Budget(3, delta="1e-6"), text="note", label="part", labels=["hip", "hand"],
...               language="en", dataset="help", llm="none", records_per_label=2)
>>> len(made.records)
4

Make:
    plan       forecast what a run would release, cost and buy; reads no private data
    check      read the private table as a run would, and report what is wrong with it; free
    run        make a synthetic table from a private one: release, then generate
    release    make a Release of a private table: the only step that reads it
    generate   turn a Release into synthetic texts; free, any number of times
    topics     find the topics of a private table, with noisy sizes
    baseline   write texts from the labels alone, as a baseline
    export     write a synthetic table as CSV, JSON lines, chats or a Hugging Face dataset
Judge:
    evaluate   compare a synthetic table with the real one: fidelity, utility, leakage
    audit      attack a whole run; audit_mechanism attacks one mechanism
    report     write the report of a run as one HTML file; verify checks the files of a run and who signed them
Also: Budget, SecretBudget (what a run may spend), read_corpus, load_release, ledger (what each dataset has spent)
Methods (pass one to run, release or plan; the default is DPKPS()):
    DPKPS, DPKDE, AugPE, SecPE, PrivatePrediction, FewShot, SeqPATE, DPFinetune, GuidedEvolution, Topics

help(us.run) lists every option. Everything loads on first use, so ``import understudy`` is fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_VERBS = "check plan run release generate topics baseline evaluate audit audit_mechanism report verify export"
_PUBLIC = {
    name: module
    for module, names in {
        "understudy.api": _VERBS,
        "understudy.audit.mechanisms.audit": "MechanismAudit",
        "understudy.audit.result": "RunAudit",
        "understudy.corpus": "Corpus read_corpus",
        "understudy.base.errors": "UnderstudyError UnderstudyWarning",
        "understudy.methods.aug_pe.method": "AugPE",
        "understudy.methods.dp_kde.method": "DPKDE",
        "understudy.methods.dp_kps.method": "DPKPS",
        "understudy.methods.dp_finetune.method": "DPFinetune NonPrivateFinetune",
        "understudy.methods.seq_pate.method": "SeqPATE",
        "understudy.methods.few_shot.method": "FewShot",
        "understudy.methods.registry": "load_release",
        "understudy.methods.private_prediction.method": "PrivatePrediction",
        "understudy.methods.guided_evolution.method": "GuidedEvolution",
        "understudy.methods.sec_pe.method": "SecPE",
        "understudy.methods.additions.topics.method": "Topics",
        "understudy.evaluate.metrics.results": "Evaluation",
        "understudy.privacy.guarantee": "Budget SecretBudget",
        "understudy.release": "Release",
        "understudy.report": "ReportPaths",
        "understudy.run.forecast": "Forecast",
        "understudy.run.check": "Checked",
        "understudy.run.session": "Listener",
        "understudy.run.signing": "Verification",
        "understudy.run.topics": "FoundTopics",
        "understudy.run.generating": "Result",
        "understudy.release.statement": "Statement",
    }.items()
    for name in names.split()
}

if TYPE_CHECKING:
    from understudy import ledger as ledger
    from understudy.api import audit as audit
    from understudy.api import audit_mechanism as audit_mechanism
    from understudy.api import baseline as baseline
    from understudy.api import check as check
    from understudy.api import evaluate as evaluate
    from understudy.api import export as export
    from understudy.api import generate as generate
    from understudy.api import plan as plan
    from understudy.api import release as release
    from understudy.api import report as report
    from understudy.api import run as run
    from understudy.api import topics as topics
    from understudy.api import verify as verify
    from understudy.audit.mechanisms.audit import MechanismAudit as MechanismAudit
    from understudy.audit.result import RunAudit as RunAudit
    from understudy.base.errors import UnderstudyError as UnderstudyError
    from understudy.base.errors import UnderstudyWarning as UnderstudyWarning
    from understudy.corpus import Corpus as Corpus
    from understudy.corpus import read_corpus as read_corpus
    from understudy.evaluate.metrics.results import Evaluation as Evaluation
    from understudy.methods.additions.topics.method import Topics as Topics
    from understudy.methods.aug_pe.method import AugPE as AugPE
    from understudy.methods.dp_finetune.method import DPFinetune as DPFinetune
    from understudy.methods.dp_finetune.method import NonPrivateFinetune as NonPrivateFinetune
    from understudy.methods.dp_kde.method import DPKDE as DPKDE
    from understudy.methods.dp_kps.method import DPKPS as DPKPS
    from understudy.methods.few_shot.method import FewShot as FewShot
    from understudy.methods.guided_evolution.method import GuidedEvolution as GuidedEvolution
    from understudy.methods.private_prediction.method import PrivatePrediction as PrivatePrediction
    from understudy.methods.registry import load_release as load_release
    from understudy.methods.sec_pe.method import SecPE as SecPE
    from understudy.methods.seq_pate.method import SeqPATE as SeqPATE
    from understudy.privacy.guarantee import Budget as Budget
    from understudy.privacy.guarantee import SecretBudget as SecretBudget
    from understudy.release import Release as Release
    from understudy.release.statement import Statement as Statement
    from understudy.report.reports import ReportPaths as ReportPaths
    from understudy.run.check import Checked as Checked
    from understudy.run.forecast import Forecast as Forecast
    from understudy.run.generating import Result as Result
    from understudy.run.session import Listener as Listener
    from understudy.run.signing import Verification as Verification
    from understudy.run.topics import FoundTopics as FoundTopics

_MODULES = ("ledger",)
"""Parts of the package that are public as they are."""
# There is no __all__: with one, help(understudy) would print every class in full, some 9,000 lines.


class _Package(ModuleType):
    """Keeps ``us.run`` the verb: importing the subpackage ``understudy.run`` would put the subpackage in its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _PUBLIC and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"understudy.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'understudy' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *_MODULES, "__version__"])
