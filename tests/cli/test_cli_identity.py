"""Identities from the command line: made once, exchanged, and compared by fingerprint."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from evenhand.cli.app import app
from evenhand.errors import InputError
from evenhand.protocol.identity import fingerprint
from evenhand.runtime.identityfiles import read_identity


def test_two_participants_get_to_know_each_other(tmp_path: Path) -> None:
    run = CliRunner()
    keys = {}
    for name in ("bank", "shop"):
        made = run.invoke(app, ["identity", "make", str(tmp_path / name), "--name", name])
        assert made.exit_code == 0, made.output
        keys[name] = made.output.split()[1]
    added = run.invoke(app, ["identity", "add", str(tmp_path / "bank"), "shop", keys["shop"]])
    assert added.exit_code == 0, added.output
    bank, shop = (read_identity(tmp_path / name) for name in ("bank", "shop"))
    assert bank.known == {"bank": bank.public, "shop": shop.public}
    bank.verify("shop", b"content", shop.sign(b"content"))
    shown = run.invoke(app, ["identity", "show", str(tmp_path / "bank")]).output
    assert f"shop: {fingerprint(shop.public)}" in shown
    assert f"bank: {fingerprint(bank.public)} (this participant)" in shown
    assert (tmp_path / "bank" / "identity.toml").stat().st_mode & 0o077 == 0
    assert shop.secret.hex() not in shown


def test_an_identity_and_a_known_key_are_not_replaced(tmp_path: Path) -> None:
    run = CliRunner()
    run.invoke(app, ["identity", "make", str(tmp_path / "a"), "--name", "a"])
    for arguments, said in [
        (["make", str(tmp_path / "a"), "--name", "b"], "never written over"),
        (["add", str(tmp_path / "a"), "a", "00" * 32], "another key of a"),
        (["add", str(tmp_path / "a"), "b", "no key"], "is not a public key"),
        (["show", str(tmp_path / "nobody")], "does not exist"),
    ]:
        with pytest.raises(InputError, match=said):
            run.invoke(app, ["identity", *arguments], catch_exceptions=False)
