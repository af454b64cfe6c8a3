"""Sign the results of a run, and verify a folder or file that may come from a stranger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy.base.display import plural, printable
from understudy.base.errors import ConfigError, LedgerError, PrivacyError, UnderstudyError
from understudy.base.files import require_inside, require_path
from understudy.methods.registry import load_release
from understudy.release.signature import (
    Manifest,
    Signer,
    changes_since,
    fingerprint,
    is_signed,
    read_public_key,
    read_signed,
)
from understudy.release.statement import Statement, load_statement, read_budget
from understudy.run.generating import Result
from understudy.run.job import FreeJob
from understudy.run.session import Listener

if TYPE_CHECKING:
    from understudy.ledger.verbs import Account


@dataclass(frozen=True)
class Signing:
    """The key and name that sign a run's results, loaded before any charge; no signature if ``signer`` is None."""

    signer: Signer | None
    responsible: str
    ledger: str | None

    @classmethod
    def of(cls, job: FreeJob) -> Signing:
        """Load the key; ConfigError if it cannot be used, or there is no folder to sign."""
        wanted = job.signing
        if wanted.sign is not None and job.place.output is None:
            raise ConfigError("There are no files to sign.", "Name their folder with --output.")
        return cls(None if wanted.sign is None else Signer.load(wanted.sign), wanted.responsible, job.ledger)

    def of_result(self, result: Result, listener: Listener) -> Result:
        """Sign the result's shareable folder; without a key, say if signed files there have changed."""
        if result.folder is None:
            return result
        folder, statement = result.folder.shareable, result.statement
        if self.signer is not None:
            made = manifest_of(statement, self.signer, responsible=self.responsible, ledger=self.ledger)
            if statement.private and made.spent is None:
                listener.say("The signature does not include what the dataset has spent: its ledger is not here.")
            signed = self.signer.sign(folder, made)
            listener.say(f"Signed {plural(len(signed.files), 'file')} with the key {signed.fingerprint}.")
        elif is_signed(folder) and ((earlier := signed_earlier(folder)) is None or changes_since(folder, earlier)):
            listener.say("The signature here does not match the new files. To sign them, use --sign KEY.")
        return result


def signed_earlier(folder: Path) -> Manifest | None:
    """Return the manifest of a folder's signature, whichever files it covers; None without a valid signature."""
    try:
        return read_signed(folder)
    except (ValueError, OSError):
        return None


def manifest_of(statement: Statement, signer: Signer, *, responsible: str, ledger: str | None) -> Manifest:
    """Return a new manifest for this statement and signer, without the list of files."""
    sealed, account = statement.sealed, booked_account(statement, ledger)
    return Manifest(
        signed_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        version=version("understudy"),
        responsible=responsible,
        dataset=statement.dataset,
        method=statement.method,
        run=sealed.run_id if sealed else "",
        ledger=sealed.ledger_id if sealed else "",
        spent=None if account is None or account.spent is None else account.spent.to_json(),
        cap=None if account is None else account.dataset.cap.to_json(),
        public_key=signer.public.hex(),
    )


def booked_account(statement: Statement, ledger: str | None) -> Account | None:
    """Return the present account of the statement's dataset; None if its ledger is not here.

    Raises PrivacyError if that ledger did not book the statement's unit, budget and charges for its run.
    """
    from understudy.ledger import Ledger, default_location
    from understudy.ledger.verbs import Account

    if statement.sealed is None or not statement.private:
        return None
    try:
        with Ledger(ledger or default_location()) as book:  # no new ledger at a named location
            if book.id != statement.sealed.ledger_id:
                return None
            history = book.history(statement.dataset) if book.dataset(statement.dataset) else []
            entry = next((each for each in history if each.run_id == statement.sealed.run_id), None)
            if entry is not None and statement.is_of(entry.unit, entry.cost, entry.charges):
                return Account.of(book, statement.dataset)
    except LedgerError:
        return None
    raise PrivacyError(
        "The ledger that the statement names has not booked this run on this dataset."
        if entry is None
        else f"The ledger booked this run with {entry.cost}, and not with the statement's unit, budget and charges.",
        "Rely on the ledger, and ask for the files that the run made.",
    )


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``unknown`` if the files alone cannot show it."""

    what: str
    state: Literal["ok", "failed", "unknown"]
    words: str


@dataclass(frozen=True, repr=False)
class Verification:
    """The findings about a folder or file.

    Args:
        signature: ``valid``: by the given key; ``unknown``: by a key that was not given, which anyone may have made;
            ``none``: nothing is signed; ``invalid``.
        manifest: the signer's statement; None without a matching signature.
    """

    signature: Literal["valid", "unknown", "none", "invalid"]
    findings: tuple[Finding, ...]
    manifest: Manifest | None

    @property
    def failed(self) -> list[str]:
        """Return the names of the failed checks."""
        return [each.what for each in self.findings if each.state == "failed"]

    @property
    def ok(self) -> bool:
        """Return whether no check failed. An unknown result is not a failure."""
        return not self.failed

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        return [(each.state, each.what, each.words) for each in self.findings]

    def __repr__(self) -> str:
        return printable("\n".join(map(": ".join, self.rows)))

    def to_json(self) -> dict[str, Any]:
        said = None if self.manifest is None else {**asdict(self.manifest), "fingerprint": self.manifest.fingerprint}
        findings = [asdict(each) for each in self.findings]
        return {"ok": self.ok, "signature": self.signature, "findings": findings, "signed": said}


_UNSIGNED = (
    "not signed: nothing shows who made this, when, what the dataset has spent in all, or that the texts and the "
    "report are unchanged"
)


def verify(
    path: str | PathLike[str],
    key: str | PathLike[str] | None = None,
    *,
    ledger: str | None = None,
    max_release_bytes: int | None = None,
) -> Verification:
    """Check everything that a run's folder, or one file of it, shows; see :func:`understudy.verify`."""
    named = Path(require_path(path))
    if not named.exists():
        raise ConfigError(f"The folder or file {named.name} does not exist.", "Check the path.")
    only = None if named.is_dir() else named.name
    folder = named.absolute().parent if only else named / "release" if (named / "release").is_dir() else named
    require_inside(folder, folder)
    signature, signed, findings = _signature(folder, None if key is None else read_public_key(key), only)
    statement = None
    for file in sorted(folder.glob("*.release")):
        if only in (None, file.name):
            words = "its hashes, seal, charges, parameters and content agree with each other"
            try:
                statement = load_release(file, max_bytes=max_release_bytes).statement
            except UnderstudyError as error:
                findings.append(Finding(file.name, "failed", error.problem))
            else:
                findings += [Finding(file.name, "ok", words), *_booking(statement, ledger)]
    if only is None or only.startswith("statement."):
        findings += _statements(folder, statement, ledger, signed=signature in ("valid", "unknown"))
    if len(findings) == 1 and signature == "none":
        if only is None:
            raise ConfigError(
                f"{named.name} is not the folder of a run.", "Name an output folder, or a file in its release/."
            )
        findings.append(Finding(only, "unknown", "this file alone cannot be checked"))
    return Verification(signature, tuple(findings), signed)


def _signature(folder: Path, given: bytes | None, only: str | None) -> tuple[Any, Manifest | None, list[Finding]]:
    """Return the signature's state, what the signer says, and findings on the signature and the signed files."""
    if not is_signed(folder):
        return "none", None, [Finding("signature", "unknown" if given is None else "failed", _UNSIGNED)]
    try:
        signed = read_signed(folder)
    except (ValueError, OSError):
        words = "the manifest and its signature do not match, or one of them is missing"
        return "invalid", None, [Finding("signature", "failed", words)]
    if given is not None and given.hex() != signed.public_key:
        words = f"made with the key {signed.fingerprint}, and not with the given one, {fingerprint(given)}"
        return "invalid", signed, [Finding("signature", "failed", words)]
    by = f"by {signed.responsible or 'somebody without a name'} on {signed.signed_at}, understudy {signed.version}"
    with_key = f"the key {signed.fingerprint}; only --key PUBLIC shows whose that is" if given is None else "this key"
    found = [
        Finding("signature", "unknown" if given is None else "ok", f"{by}, with {with_key}"),
        Finding("spent by then", "ok" if signed.spent else "unknown", _spending(signed)),
    ]
    wrong = {name: words for name, words in changes_since(folder, signed).items() if only in (None, name)}
    found += [Finding(name, "failed", words) for name, words in wrong.items()]
    if not wrong:
        found.append(Finding(only or plural(len(signed.files), "file"), "ok", "unchanged since then, byte for byte"))
    return "unknown" if given is None else "valid", signed, found


def _spending(signed: Manifest) -> str:
    from understudy.ledger.values import both

    if signed.spent is None or signed.cap is None:
        return "the signer's ledger was not available"
    try:
        spent, cap = both(read_budget(signed.spent)), both(read_budget(signed.cap), left=True)
    except (ValueError, UnderstudyError):
        return "no numbers"
    names = "prior, posterior" if "prior" in signed.spent else "epsilon, delta"
    return f"{names} {spent} by all runs on dataset {signed.dataset}, of a cap of {cap}"


def _booking(statement: Statement, ledger: str | None) -> Iterator[Finding]:
    """Yield the finding on whether the ledger, if it is here, booked what the statement says."""
    try:
        account = booked_account(statement, ledger)
    except PrivacyError as error:
        yield Finding("ledger", "failed", f"{error.problem} {error.cure}")
        return
    if account is not None:
        yield Finding("ledger", "ok", "the ledger here has charged this run with this unit, budget and charges")
    elif ledger is not None and statement.private:
        yield Finding("ledger", "unknown", "this is not the ledger that the statement names, or it cannot be read")


def _statements(folder: Path, made: Statement | None, ledger: str | None, *, signed: bool) -> Iterator[Finding]:
    """Yield findings on whether the two files of the statement agree with the Release; without one, with the ledger."""
    path, text = folder / "statement.json", folder / "statement.md"
    if not path.is_file():
        return
    try:
        statement = load_statement(path)
    except UnderstudyError as error:
        yield Finding(path.name, "failed", error.problem)
        return
    words = "its charges keep what it promises"
    more = statement.notes[len(made.notes) :] if made is not None else ()  # a condition on the rows
    expected = made and replace(made, notes=(*made.notes, *more), table=statement.table)
    if expected is not None and expected.to_json() != statement.to_json():
        yield Finding(path.name, "failed", "differs from the Release")
    else:
        yield Finding(path.name, "ok", words if made is None else f"{words}, as in the Release")
    if made is None:
        yield from _booking(statement, ledger)
    if not signed and text.is_file():  # another version of understudy may have signed other words
        with text.open("rb") as file:
            data = file.read(1 << 24).decode("utf-8", "replace")
        if data in (statement.to_markdown(labelled=True), statement.to_markdown(labelled=False)):
            yield Finding(text.name, "ok", "agrees with statement.json")
        else:
            yield Finding(text.name, "failed", "differs from statement.json, or another version wrote it")


def signed_rows(manifest: Manifest) -> Sequence[tuple[str, str]]:
    """Return titles and values that describe the signature, for a page that will be, or was, signed with it."""
    rows = [("signed by", manifest.responsible), ("signed at", manifest.signed_at)]
    rows += [("key of the signature", manifest.fingerprint), ("spent when signed", _spending(manifest))]
    return [row for row in rows if row[1]]
