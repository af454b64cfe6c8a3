"""Render templates to self-contained files, whose policy forbids fetching anything and running foreign scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from understudy.base.display import DIRECTIONS
from understudy.base.errors import ConfigError, LedgerError, UnderstudyError, UnderstudyWarning
from understudy.base.files import PRIVATE_MODE, SHARED_MODE, atomic_file
from understudy.ledger import Ledger, default_location
from understudy.ledger.admission import remaining
from understudy.ledger.values import both, what_remains
from understudy.models.types import Embedder
from understudy.models.vectors import FOLDER, remembering
from understudy.release.signature import Manifest, Signer
from understudy.release.statement import Statement
from understudy.report.contents import Contents, internal, read_statement, shareable
from understudy.report.numbers import hundredths, paragraphs, percent, short, span
from understudy.report.views import view
from understudy.run.outputs import OutputFolder
from understudy.run.signing import manifest_of, signed_earlier, signed_rows


def render(template: str, **values: Any) -> str:
    """Render the page: all values escaped, style and script inline and named by their hashes in the page's policy.

    Control characters, which HTML may not contain, are shown as visible symbols.
    """
    style, script = report_file("style.css"), report_file("page.js")
    page = (
        environment()
        .get_template(template)
        .render(
            policy=policy(style, script),
            style=Markup(style),
            script=Markup(script),
            version=version("understudy"),
            **values,
        )
    )
    return visible(page)


def visible(page: str) -> str:
    """Replace control characters, which HTML may not contain, by visible symbols."""
    return page.translate(_VISIBLE)


@contextmanager
def page_of(*folders: Path) -> Iterator[None]:
    """Turn every failure with a page of these folders, which strangers may have made, into one error."""
    try:
        yield
    except UnderstudyError:
        raise
    except Exception as error:  # errors that no file reader expected
        if os.environ.get("UNDERSTUDY_DEBUG"):
            raise
        names = ", ".join(folder.name or str(folder) for folder in folders)
        raise ConfigError(
            f"The contents of {names} cannot be shown as a page ({type(error).__name__}).",
            "Make the damaged files again. If understudy wrote them all, this is a bug: UNDERSTUDY_DEBUG=1 shows it.",
        ) from None


def write_page(path: Path, text: str, *, private: bool) -> None:
    """Write a page completely or not at all; if ``private``, only its owner may read it."""
    try:
        with atomic_file(path, mode=PRIVATE_MODE if private else SHARED_MODE) as file:
            file.write(text.encode())
    except OSError as error:
        raise ConfigError(
            f"{path.name} cannot be written ({error.strerror}).", "Check that its folder exists and is writable."
        ) from None


def policy(style: str, script: str) -> str:
    """Return a content security policy: nothing is fetched, and only this inline style and script are allowed."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _visible(value: Any) -> Any:
    """Return a JSON value with visible symbols for control characters, which JSON's ``\\u0000`` would not show."""
    if isinstance(value, dict):
        return {_visible(key): _visible(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_visible(each) for each in value]
    return value.translate(_VISIBLE) if isinstance(value, str) else value


_VISIBLE: dict[int, str] = {
    **DIRECTIONS,
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\t\n\r"},
    0x7F: "\u2421",
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000), *range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF), "\ufffd"),
}
"""Escapes for direction marks, symbols for ASCII controls; U+FFFD for other controls and invalid characters."""


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def report_file(name: str) -> str:
    """Return a style sheet or script of the report."""
    return resources.files("understudy.report").joinpath("templates", name).read_text("utf-8")


@lru_cache(maxsize=2)
def environment(*packages: str) -> Environment:
    """Return the templates of these packages, which take precedence over the report's; every value is escaped."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "understudy.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.policies["json.dumps_function"] = lambda value, **options: json.dumps(_visible(value), **options)
    made.filters.update(short=short, percent=percent, hundredths=hundredths, span=span, paragraphs=paragraphs)
    made.filters["quoted"] = shlex.quote
    return made


@dataclass(frozen=True)
class ReportPaths:
    """The paths of the reports; ``internal`` is None if nothing private was measured."""

    shareable: Path
    internal: Path | None


def write_reports(
    folder: OutputFolder,
    *,
    embedder: Embedder | None,
    seed: int = 0,
    responsible: str = "",
    ledger: str | None = None,
    signer: Signer | None = None,
) -> ReportPaths:
    """Write ``release/report.html`` and, if anything was measured on private texts, ``private/report.html``.

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
        if signer and signing:
            signer.sign(folder.shareable, signing)
        elif earlier:
            words = "The signature does not cover the new report: `understudy report --sign KEY` signs again."
            warnings.warn(words, UnderstudyWarning, stacklevel=3)
        inside = internal(public, folder.shareable, folder.private)
        if inside is None:
            return ReportPaths(folder.report_file, None)
        folder.make_private()
        write_page(folder.internal_report_file, page(inside), private=True)
        return ReportPaths(folder.report_file, folder.internal_report_file)


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
