"""The reports of a run: all pages are written together, so that one signature covers them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from understudy.base.errors import LedgerError, UnderstudyWarning
from understudy.ledger import Ledger, default_location
from understudy.ledger.admission import remaining
from understudy.ledger.values import both, what_remains
from understudy.models.types import Embedder
from understudy.models.vectors import FOLDER, remembering
from understudy.release.signature import Manifest, Signer
from understudy.release.statement import Statement
from understudy.report.contents import Contents, internal, shareable
from understudy.report.page import page_of, render, write_page
from understudy.report.topics import write_topics
from understudy.report.views import view
from understudy.run.outputs import OutputFolder, read_statement
from understudy.run.signing import manifest_of, signed_earlier, signed_rows
from understudy.run.topics import FoundTopics


@dataclass(frozen=True)
class ReportPaths:
    """Paths of the written pages. ``internal`` is None if nothing was measured on private texts, ``topics`` is None
    unless the run found topics for labels."""

    shareable: Path
    internal: Path | None
    topics: Path | None = None


def write_reports(
    folder: OutputFolder,
    *,
    embedder: Embedder | None,
    seed: int = 0,
    responsible: str = "",
    ledger: str | None = None,
    signer: Signer | None = None,
) -> ReportPaths:
    """Write ``release/report.html``, and ``release/topics.html`` if the run's labels are topics that it found.

    If anything was measured on private texts, write ``private/report.html`` too.

    Args:
        embedder: for the topics and the map of the shareable report; None: they use the words of the texts.
        seed: of the map and of the samples shown; not of any noise.
        responsible: the name of the responsible person in both reports.
        ledger: where the run was booked; None: the default one.
        signer: signs the shareable files once the report is written.
    """
    statement = read_statement(folder.shareable)
    earlier = signed_earlier(folder.shareable)
    responsible = responsible or (earlier.responsible if earlier and signer else "")
    signing = None
    if signer is not None:
        signing = manifest_of(statement, signer, responsible=responsible, ledger=ledger)

    def page(contents: Contents) -> str:
        filed = [*for_the_file(contents, responsible, ledger), *_signature_rows(signing, earlier)]
        return render("report.html", **view(contents, seed=seed), filed=filed, responsible=responsible)

    with page_of(folder.root):
        if embedder is not None and (folder.private / FOLDER).is_dir():  # never made where only shareable files are
            embedder = remembering(embedder, folder.private)
        public = shareable(folder.shareable, embedder=embedder, seed=seed)
        write_page(folder.report_file, page(public), private=False)
        topics = None
        if public.release and public.release.schema.topics:
            topics = write_topics(FoundTopics(public.release), folder.topics_file, public.texts, seed=seed)
        if signer and signing:
            signer.sign(folder.shareable, signing)
        elif earlier:
            words = "The signature does not cover the new report: `understudy report --sign KEY` signs again."
            warnings.warn(words, UnderstudyWarning, stacklevel=3)
        inside = internal(public, folder.shareable, folder.private)
        if inside is None:
            return ReportPaths(folder.report_file, None, topics)
        folder.make_private()
        write_page(folder.internal_report_file, page(inside), private=True)
        return ReportPaths(folder.report_file, folder.internal_report_file, topics)


def _signature_rows(signing: Manifest | None, earlier: Manifest | None) -> list[tuple[str, str]]:
    """Return titles and values about the signature. A page cannot vouch for itself, so it says how to check it."""
    if signing is None and earlier is None:
        return [("signature", "none: nothing shows who made these files, or that they are unchanged")]
    if signing is not None:
        return [*signed_rows(signing), ("signature", "check it: understudy verify FOLDER --key PUBLIC")]
    assert earlier is not None
    return [*signed_rows(earlier), ("signature", "does not cover this page, which was made later")]


def for_the_file(contents: Contents, responsible: str, location: str | None) -> list[tuple[str, str]]:
    """Return titles and values; a shareable page has only the day and the spent budget from the ledger."""
    statement = contents.statement
    rows = [
        ("dataset", statement.dataset),
        ("method", statement.method),
        ("software", f"understudy {version('understudy')}"),
    ]
    if contents.release is not None:
        rows.append(("Release (SHA-256)", contents.release.digest))
    if statement.private:
        rows += _booked(statement, location)[: None if contents.internal else 2]
    return [*rows, *([("responsible", responsible)] if responsible else [])]


def _booked(statement: Statement, location: str | None) -> list[tuple[str, str]]:
    """Return the ledger's entries right after the run was booked; nothing if that ledger is not here."""
    assert statement.sealed is not None
    try:
        with Ledger(location or default_location()) as ledger:  # a missing ledger is not created
            dataset = ledger.dataset(statement.dataset)
            if ledger.id != statement.sealed.ledger_id or dataset is None:
                return []
            balances = ledger.account(dataset.name)
    except LedgerError:
        return []
    raised = any(each.entry.cap is not None for each in balances)
    for each in balances:
        if each.entry.run_id == statement.sealed.run_id:
            rows = [
                ("released on", f"{each.entry.at:%Y-%m-%d} (UTC)"),
                ("spent in all, with this run", both(each.spent)),
            ]
            if each.cap is not None or not raised:  # after a raise, the first cap is not on record
                then = replace(dataset, cap=each.cap or dataset.cap)
                rows.append(("cap of the dataset then", both(then.cap, left=True)))
                rows.append(("left of the cap then", what_remains(then, remaining(then, each.spent))))
            return rows
    return []
