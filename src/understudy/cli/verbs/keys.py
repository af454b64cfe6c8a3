"""``understudy keys``: keys that sign the results of runs."""

from __future__ import annotations

import click

from understudy.cli.options import json_option
from understudy.cli.output import answer


@click.group("keys")
def keys() -> None:
    """Make keys that sign the results of runs."""


@keys.command()
@click.argument("file")
@json_option
def create(file: str, *, as_json: bool) -> None:
    """Write a new private key to FILE, which only you can read, and its public key to FILE.pub.

    If the environment variable UNDERSTUDY_KEY_PASSPHRASE is set, it encrypts the private key, and must be set when you
    sign. Give the public key and its fingerprint to those who receive your results.
    """
    from understudy.release.signature import create_keys, fingerprint

    public, key = create_keys(file)
    fields = {"private": file, "public": str(public), "fingerprint": fingerprint(key)}
    answer(as_json, fields, f"Private key: {file}", f"Public key: {public}", f"Fingerprint: {fingerprint(key)}")
