"""``understudy verify``: check the files of a run, and who signed them."""

from __future__ import annotations

import click

from understudy.base.errors import ReleaseError
from understudy.cli.options import json_option, release_size_option
from understudy.cli.output import show_json, show_table


@click.command()
@click.argument("path")
@click.option("--key", metavar="PUBLIC", help="Public key of the expected signer, received from the signer.")
@click.option("--ledger", metavar="LOCATION", help="Ledger where the run may be booked.  [default: as for a run]")
@json_option
@release_size_option
def verify(path: str, *, key: str | None, ledger: str | None, as_json: bool, max_release_bytes: int | None) -> None:
    """Check everything that the output folder PATH, or a file in its release/, shows about itself, and who signed it.

    Without --key it checks hashes, charges, parameters, and whether files changed since they were signed; if the
    ledger is here that charged the run, also unit, budget and charges against it. Only the signer's public key shows
    who signed them.
    """
    from understudy import api

    found = api.verify(path, key, ledger=ledger, max_release_bytes=max_release_bytes)
    if as_json:
        show_json(found.to_json())
    else:
        show_table(("", "what", "found"), found.rows)
    if not found.ok:
        check = "Check that --key is the signer's, or ask" if key and "signature" in found.failed else "Ask"
        problem = f"These do not verify: {', '.join(found.failed[:5])}."
        raise ReleaseError(problem, f"{check} the sender for a new copy.")
