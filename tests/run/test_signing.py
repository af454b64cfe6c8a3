"""Signatures: who made the files of a run, and that they are unchanged."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clinic import settings
from run_fixtures import EDITS, Command, runs_charged, with_stated

import understudy as us
from understudy.base.errors import ConfigError, PrivacyError
from understudy.ledger import Ledger
from understudy.release import signature
from understudy.release.signature import MANIFEST, SIGNATURE, Manifest, Signer, create_keys, read_signed
from understudy.release.statement import Statement, load_statement
from understudy.run import pipeline
from understudy.run.outputs import OutputFolder
from understudy.run.settings import run_config
from understudy.run.signing import manifest_of, verify

WHO = "Jane Doe, data protection"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("keys")
    for name in ("ours", "theirs"):
        create_keys(place / name)
    return place


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """A signed run of this module, which tests copy."""
    place = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNDERSTUDY_LEDGER", str(place / "default.sqlite"))
        values = settings(place, sign=str(keys / "ours"), responsible=WHO)
        pipeline.run(run_config(values))
        yield Path(values["output"]), values


@pytest.fixture
def folder(made: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    """A copy of its results as somebody receives them: the shareable folder alone."""
    return Path(shutil.copytree(made[0] / "release", tmp_path / "received"))


def test_a_signed_run_says_who_when_and_what_was_spent(folder: Path, made: tuple[Path, dict[str, Any]]) -> None:
    signed = read_signed(folder)
    with Ledger(made[1]["ledger"]) as ledger:
        (dataset,) = ledger.datasets()
        assert (signed.spent, signed.cap) == (ledger.spent(dataset.name).to_json(), dataset.cap.to_json())  # type: ignore[union-attr]
        assert signed.ledger == ledger.id
    statement = load_statement(folder / "statement.json")
    assert statement.sealed is not None
    assert (signed.responsible, signed.run, signed.dataset) == (WHO, statement.sealed.run_id, statement.dataset)
    assert signed.version == us.__version__
    assert abs(time.time() - time.mktime(time.strptime(signed.signed_at, "%Y-%m-%dT%H:%M:%SZ")) + time.timezone) < 3600
    assert set(signed.files) == {path.name for path in folder.iterdir()} - {MANIFEST, SIGNATURE}


def test_a_key_verifies_a_folder_a_run_and_files(folder: Path, made: tuple[Path, dict[str, Any]], keys: Path) -> None:
    for path in (folder, made[0], made[0] / "release", *folder.iterdir()):
        found = us.verify(path, keys / "ours.pub")
        assert (found.ok, found.signature) == (True, "valid"), path
    assert ("ok", "ledger") in [row[:2] for row in us.verify(made[0], ledger=made[1]["ledger"]).rows]


@pytest.mark.parametrize(
    "edit",
    [
        *EDITS.values(),
        lambda file: with_stated(file, dataset="other"),
        lambda file: with_stated(file, sealed=replace(us.load_release(file).statement.sealed, run_id="0" * 32)),  # type: ignore[type-var]
    ],
    ids=[*EDITS, "dataset", "run"],
)
def test_a_statement_that_is_not_what_the_ledger_booked_fails(
    folder: Path, made: tuple[Path, dict[str, Any]], keys: Path, edit: Callable[[Path], Statement]
) -> None:
    ledger = made[1]["ledger"]
    for name in (MANIFEST, SIGNATURE):
        (folder / name).unlink()
    stated = edit(folder / "dp-kps.release")
    (folder / "statement.json").write_text(json.dumps(stated.to_json()), "utf-8")
    (folder / "statement.md").write_text(stated.to_markdown(), "utf-8")
    assert verify(folder).ok  # the files agree with each other
    for path in (folder, folder / "dp-kps.release", folder / "statement.json"):
        found = verify(path, ledger=ledger)
        assert found.failed == ["ledger"]
        assert "Rely on the ledger" in str(found)
    (folder / "dp-kps.release").unlink()
    assert verify(folder, ledger=ledger).failed == ["ledger"]
    with pytest.raises(PrivacyError, match="ledger"):
        manifest_of(stated, Signer.load(keys / "ours"), responsible=WHO, ledger=ledger)


def test_a_named_ledger_that_is_another_one_shows_nothing(folder: Path, tmp_path: Path) -> None:
    Ledger.create(tmp_path / "other.sqlite").close()
    for ledger in (tmp_path / "other.sqlite", tmp_path / "nowhere.sqlite"):
        found = verify(folder, ledger=str(ledger))
        assert (found.ok, [each.state for each in found.findings if each.what == "ledger"]) == (True, ["unknown"])


def test_without_the_key_it_is_said_that_nobody_is_known(folder: Path) -> None:
    found = verify(folder)
    assert (found.ok, found.signature, found.findings[0].state) == (True, "unknown", "unknown")
    assert "only --key PUBLIC" in found.findings[0].words


def test_another_key_does_not_verify_and_neither_does_what_it_signed_again(folder: Path, keys: Path) -> None:
    assert verify(folder, keys / "theirs.pub").failed == ["signature"]
    Signer.load(keys / "theirs").sign(
        folder, replace(read_signed(folder), public_key=Signer.load(keys / "theirs").public.hex())
    )
    found = verify(folder, keys / "ours.pub")
    assert (found.signature, found.failed) == ("invalid", ["signature"])
    assert verify(folder).ok  # which is why the key must come from the signer


def test_two_hundred_random_changes_of_a_byte_are_all_found(folder: Path, keys: Path) -> None:
    seed = random.randrange(10**9)
    chance = random.Random(seed)
    files = sorted(folder.iterdir())
    for number in range(200):
        path = files[number % len(files)] if number < 100 else chance.choice(files)
        data = path.read_bytes()
        place, change = chance.randrange(len(data)), chance.randrange(1, 256)
        path.write_bytes(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
        for key in (keys / "ours.pub", None):
            assert not verify(folder, key).ok, (path.name, place, change, seed)
        assert not verify(path, keys / "ours.pub").ok, (path.name, place, change, seed)
        path.write_bytes(data)
    assert verify(folder, keys / "ours.pub").ok


@pytest.mark.parametrize("name", ["synthetic.parquet", "statement.md", MANIFEST, SIGNATURE])
def test_a_file_that_is_missing_longer_shorter_or_more_is_found(folder: Path, keys: Path, name: str) -> None:
    path = folder / name
    data = path.read_bytes()
    for changed in (None, b"", data[:-1], data + b"\n", b"\n" + data):
        path.unlink() if changed is None else path.write_bytes(changed)
        assert not verify(folder, keys / "ours.pub").ok
        assert not verify(folder).ok
    path.write_bytes(data)
    (folder / "deep").mkdir()
    (folder / "deep" / name).write_bytes(data)
    assert verify(folder).failed == [f"deep/{name}"]


def test_files_of_any_name_and_depth_are_signed(folder: Path, keys: Path) -> None:
    signer = Signer.load(keys / "ours")
    (folder / "more").mkdir()
    (folder / "more" / "provenance.parquet").write_bytes(b"x")
    (folder / ".hidden").write_bytes(b"")
    signed = signer.sign(folder, read_signed(folder))
    assert {"more/provenance.parquet", ".hidden"} <= set(signed.files)
    assert verify(folder, keys / "ours.pub").ok
    (folder / "more" / "provenance.parquet").write_bytes(b"y")
    assert verify(folder).failed == ["more/provenance.parquet"]


def test_what_is_no_ordinary_file_is_not_waited_for(folder: Path, keys: Path) -> None:
    signed = read_signed(folder)
    os.mkfifo(folder / "pipe")
    assert verify(folder).failed == ["pipe"]
    with pytest.raises(ConfigError, match="cannot be signed"):
        Signer.load(keys / "ours").sign(folder, signed)
    os.mkfifo(folder / SIGNATURE)
    assert "signature" in verify(folder).failed


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("x")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="leads out"):
        verify(folder)


def test_an_unsigned_folder_says_so_and_is_checked_as_far_as_it_goes(folder: Path, keys: Path) -> None:
    for name in (MANIFEST, SIGNATURE):
        (folder / name).unlink()
    found = verify(folder)
    assert (found.ok, found.signature) == (True, "none")
    assert found.findings[0].words.startswith("not signed: nothing shows who made this")
    assert {each.what for each in found.findings[1:]} == {"dp-kps.release", "statement.json", "statement.md"}
    assert verify(folder, keys / "ours.pub").failed == ["signature"]
    text = (folder / "statement.md").read_text("utf-8")
    (folder / "statement.md").write_text(text.replace("epsilon", "epsilom", 1), "utf-8")
    assert verify(folder).failed == ["statement.md"]
    stated = json.loads((folder / "statement.json").read_text("utf-8"))
    (folder / "statement.json").write_text(json.dumps({**stated, "dataset": "another"}))
    assert "statement.json" in verify(folder).failed
    data = (folder / "dp-kps.release").read_bytes()
    (folder / "dp-kps.release").write_bytes(data[:-200] + data[-199:])
    assert "dp-kps.release" in verify(folder / "dp-kps.release").failed


def test_what_is_no_run_is_an_error_and_a_table_alone_shows_nothing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        verify(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="not the folder of a run"):
        verify(tmp_path)
    alone = shutil.copy(folder / "synthetic.parquet", tmp_path / "alone")
    found = verify(alone)
    assert (found.ok, [each.state for each in found.findings]) == (True, ["unknown", "unknown"])


@pytest.mark.parametrize(
    "changed",
    [
        {"files": {"../elsewhere": {"size": 1, "sha256": "0" * 64}}},
        {"signed_at": 5},
        {"public_key": "00"},
        {"spent": {"epsilon": "1", "delta": "x" * 100}},
        {"files": []},
    ],
)
def test_a_manifest_of_another_form_is_an_error_in_words_or_shows_what_it_says(
    folder: Path, keys: Path, changed: dict[str, Any]
) -> None:
    data = (
        json.dumps({**json.loads((folder / MANIFEST).read_bytes()), **changed}, indent=1, sort_keys=True).encode()
        + b"\n"
    )
    (folder / MANIFEST).write_bytes(data)
    (folder / SIGNATURE).write_bytes(Signer.load(keys / "ours")._key.sign(data))
    found = verify(folder)
    assert "no numbers" in str(found) or not found.ok


def test_a_key_is_its_owners_alone_and_never_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.umask(os.umask(0))
    public, key = create_keys(tmp_path / "k")
    assert stat.S_IMODE((tmp_path / "k").stat().st_mode) == 0o600
    assert (tmp_path / "k").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert Signer.load(tmp_path / "k").public == key == signature.read_public_key(public)
    for name in ("k", "other"):
        (tmp_path / "other.pub").touch()
        with pytest.raises(ConfigError, match="already"):
            create_keys(tmp_path / name)
    assert Signer.load(tmp_path / "k").public == key
    monkeypatch.setenv(signature.PASSPHRASE, "open sesame")
    create_keys(tmp_path / "locked")
    assert b"ENCRYPTED" in (tmp_path / "locked").read_bytes()
    Signer.load(tmp_path / "locked")
    Signer.load(tmp_path / "k")  # the variable may be set for another key
    for wrong in ("other", ""):
        monkeypatch.setenv(signature.PASSPHRASE, wrong)
        with pytest.raises(ConfigError, match="key locked"):
            Signer.load(tmp_path / "locked")


def test_what_is_no_key_is_refused(tmp_path: Path, keys: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    other = generate_private_key(SECP256R1())
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "curve").write_bytes(other.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    (tmp_path / "text").write_text("no key")
    for private in (keys / "ours.pub", tmp_path / "text", tmp_path / "curve", tmp_path / "nowhere", tmp_path):
        with pytest.raises(ConfigError, match="key"):
            Signer.load(private)
        if private.suffix != ".pub":
            with pytest.raises(ConfigError, match="key"):
                signature.read_public_key(private)
    with pytest.raises(ConfigError, match="key"):
        signature.read_public_key(keys / "ours")


@pytest.mark.parametrize("verb", [us.run, us.release])
def test_a_key_that_cannot_be_used_stops_a_run_before_it_is_charged(verb: Callable[..., Any], tmp_path: Path) -> None:
    values = settings(tmp_path, sign=str(tmp_path / "no key"))
    data = values.pop("data")
    for changes in ({}, {"output": None}, {"sign": None, "responsible": WHO}):
        with pytest.raises(ConfigError, match=r"key|files to sign|responsible"):
            verb(data, **{**values, **changes})
    assert runs_charged(values["ledger"]) == 0


def test_a_run_without_a_key_says_that_the_signature_is_of_other_files(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, keys: Path
) -> None:
    values = {**made[1], "output": str(shutil.copytree(made[0], tmp_path / "out")), "dataset": "notes"}
    for name in ("sign", "responsible"):
        values.pop(name)
    said: list[str] = []
    pipeline.run(run_config({**values, "records_per_label": 1}), listener=us.Listener(said.append))
    assert any("does not match the new files" in line for line in said)
    assert verify(tmp_path / "out", keys / "ours.pub").failed
    pipeline.run(run_config({**values, "records_per_label": 1, "sign": str(keys / "ours")}))
    assert verify(tmp_path / "out", keys / "ours.pub").ok


def test_texts_made_elsewhere_are_signed_without_their_ledger(folder: Path, tmp_path: Path, keys: Path) -> None:
    said: list[str] = []
    made = us.generate(
        folder / "dp-kps.release", llm="none", records=2, output=tmp_path / "texts", sign=keys / "ours",
        listener=us.Listener(said.append),
    )  # fmt: skip
    found = us.verify(made, keys / "ours.pub")
    assert (found.ok, found.signature) == (True, "valid")
    assert found.manifest is not None
    assert found.manifest.spent is None
    assert any("its ledger is not here" in line for line in said)
    us.generate(folder / "dp-kps.release", llm="none", records=3, output=tmp_path / "texts", fresh=True)
    assert verify(tmp_path / "texts").signature == "none"  # the old signature went with the old texts


def test_reports_say_whether_they_are_signed(
    made: tuple[Path, dict[str, Any]], tmp_path: Path, keys: Path, understudy: Command
) -> None:
    out = shutil.copytree(made[0], tmp_path / "out")
    page, ledger = OutputFolder(out).report_file, f"--ledger={made[1]['ledger']}"
    said = understudy("report", str(out), ledger, code=0)
    assert "does not cover the new report" in said.err
    assert "does not cover this page" in page.read_text("utf-8")
    assert f"<dt>signed by</dt><dd>{WHO}</dd>" in page.read_text("utf-8")
    assert "report.html" in understudy("verify", str(out), code=7).out
    assert understudy("report", str(out), ledger, "--sign", str(keys / "ours"), code=0).err == ""
    shown = page.read_text("utf-8")
    signed = read_signed(out / "release")
    for words in (signed.fingerprint, signed.signed_at, "understudy verify", "spent when signed", "spent in all"):
        assert words in shown
    assert signed.responsible == WHO  # as it was signed before
    said = understudy("verify", str(out), "--key", str(keys / "ours.pub"), "--json", code=0)
    assert json.loads(said.out)["signature"] == "valid"
    for name in (MANIFEST, SIGNATURE):
        (out / "release" / name).unlink()
    understudy("report", str(out), ledger, code=0)
    assert "none: nothing shows who made these files" in page.read_text("utf-8")


def test_the_command_makes_keys_and_shows_what_failed(folder: Path, tmp_path: Path, understudy: Command) -> None:
    said = understudy("keys", "create", str(tmp_path / "mine"), code=0)
    assert "Fingerprint: " in said.out
    understudy("keys", "create", str(tmp_path / "mine"), code=2)
    assert "unknown\tsignature" in understudy("verify", str(folder), code=0).out
    said = understudy("verify", str(folder), "--key", str(tmp_path / "mine.pub"), code=7)
    assert "failed\tsignature" in said.out
    assert "do not verify: signature" in said.err
    assert "Check that --key is the signer's" in said.err


def test_a_manifest_gives_the_same_bytes_again(folder: Path) -> None:
    data = (folder / MANIFEST).read_bytes()
    assert Manifest.from_bytes(data).to_bytes() == data
