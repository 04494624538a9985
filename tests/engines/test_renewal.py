"""Keys that parties make themselves, certificates that are renewed, and a party that comes later."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.shops import PARTIES, Shops, running_shops, wait_until
from typer.testing import CliRunner

import evenhand.federation
from evenhand.cli.app import app
from evenhand.cli.federation_client import start
from evenhand.errors import InputError, RunError
from evenhand.jobs.federation.files import read_federation
from evenhand.protocol.identity import Identity
from evenhand.runtime.identityfiles import FOLDER, read_identity, read_known
from evenhand.runtime.nvflare.certificates import (
    Authority,
    check_certificate,
    install_keys,
    load,
    make_request,
    read_request,
    subject_of,
    write_certificate,
)
from evenhand.runtime.nvflare.kits import AUTHORITY, admit, provision

pytestmark = pytest.mark.timeout(300)


def shakes_hands(server: Path, client: Path) -> bool:
    """Whether TLS accepts both certificates of two kits."""
    at_server, at_client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    at_server.verify_mode, at_client.check_hostname = ssl.CERT_REQUIRED, False
    ours, theirs = (ssl.MemoryBIO(), ssl.MemoryBIO()), (ssl.MemoryBIO(), ssl.MemoryBIO())
    for context, kit, name in ((at_server, server, "server"), (at_client, client, "client")):
        context.load_cert_chain(kit / "startup" / f"{name}.crt", kit / "startup" / f"{name}.key")
        context.load_verify_locations(kit / "startup" / "rootCA.pem")
    ends = at_server.wrap_bio(*ours, server_side=True), at_client.wrap_bio(*theirs)
    try:
        for _ in range(10):
            for end in ends:
                with contextlib.suppress(ssl.SSLWantReadError):
                    end.do_handshake()
                theirs[0].write(ours[1].read())
                ours[0].write(theirs[1].read())
        return all(end.version() is not None and end.getpeercert() for end in ends)
    except ssl.SSLError:
        return False


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation in which shop has made its own keys."""
    folder = tmp_path_factory.mktemp("renewal")
    request = read_request(make_request("shop", folder / "own"))
    provision("credit", "localhost", 18002, ["bank", "shop"], folder / "kits", [request])
    return folder / "kits"


def test_the_kit_of_a_request_holds_no_key_until_its_owner_puts_it_there(kits: Path) -> None:
    kit, own = kits / "shop", kits.parent / "own"
    assert not list(kit.rglob("*.key"))
    assert not (kit / FOLDER / "identity.toml").exists()
    with pytest.raises(RunError, match="evenhand federation install"):
        check_certificate(kit)
    install_keys(kit, own)
    check_certificate(kit)
    assert shakes_hands(kits / "server", kit)
    assert shakes_hands(kits / "server", kits / "bank")
    # Everybody knows the identity that shop has made, and shop knows everybody's.
    known = {name: read_known(kits / name / FOLDER / "identities.toml") for name in ("server", "bank", "shop")}
    assert known["server"] == known["bank"] == known["shop"]
    assert read_identity(kit / FOLDER).public == known["bank"]["shop"]
    assert isinstance(read_identity(kits / "bank" / FOLDER), Identity)


def test_the_authority_holds_nobodys_key(kits: Path) -> None:
    state = json.loads((kits / AUTHORITY / "cert.json").read_text())
    assert state.keys() == {"root_cert", "root_pri_key"}
    keys = [path.read_text().split("\n")[3] for path in kits.rglob("*.key") if AUTHORITY not in path.parts]
    assert keys
    assert not [one for one in keys if one in "".join(p.read_text() for p in (kits / AUTHORITY).iterdir())]


def test_keys_of_another_request_do_not_fit(kits: Path, tmp_path: Path) -> None:
    make_request("shop", tmp_path / "other")
    with pytest.raises(InputError, match="is for another key"):
        install_keys(kits / "shop", tmp_path / "other")


def test_requests_that_were_changed_are_refused(tmp_path: Path) -> None:
    path = make_request("shop", tmp_path / "own")
    content = json.loads(path.read_text())
    for change in ({"name": "bank"}, {"identity": "00"}, {"request": "x"}, {"request": None}):
        path.write_text(json.dumps(content | change))
        with pytest.raises(InputError):
            read_request(path)
    path.write_text("no JSON")
    with pytest.raises(InputError, match="is not a request"):
        read_request(path)
    with pytest.raises(InputError, match="never overwritten"):
        make_request("shop", tmp_path / "own")


def test_a_fingerprint_stands_for_the_key_of_the_certificate_too(tmp_path: Path) -> None:
    """Who changes a request under way cannot keep the identity and put in a key of its own."""
    path, others = make_request("shop", tmp_path / "own"), make_request("shop", tmp_path / "others")
    content, other = json.loads(path.read_text()), json.loads(others.read_text())
    path.write_text(json.dumps(content | {"request": other["request"]}))
    with pytest.raises(InputError, match="has not signed the request of 'shop'"):
        read_request(path)


@pytest.mark.parametrize("name", ["admin", "authority"])
def test_a_request_in_the_name_of_a_kit_gets_none_of_its_rights(name: str, tmp_path: Path) -> None:
    request = read_request(make_request(name, tmp_path / "own"))
    (tmp_path / "federation.toml").write_text(
        f'[federation]\nname = "credit"\nserver = "localhost"\nparties = ["bank", "{name}"]\n'
    )
    with pytest.raises(InputError, match="cannot be the name of a site"):
        read_federation(tmp_path / "federation.toml")
    with pytest.raises(InputError, match="is no name of a party"):
        provision("credit", "localhost", 18002, ["bank", name], tmp_path / "kits", [request])
    assert not (tmp_path / "kits").exists()


def test_two_requests_of_one_name_make_no_kits(tmp_path: Path) -> None:
    requests = [read_request(make_request("shop", tmp_path / one)) for one in ("a", "b")]
    with pytest.raises(InputError, match="two requests have the same name"):
        provision("credit", "localhost", 18002, ["bank", "shop"], tmp_path / "kits", requests)


def test_a_file_that_is_no_certificate_is_not_renewed(kits: Path, tmp_path: Path) -> None:
    (tmp_path / "client.crt").write_text("junk")
    with pytest.raises(RunError, match="is not a certificate"):
        load(tmp_path / "client.crt")


def test_a_renewed_certificate_has_the_same_key_use_and_owner(kits: Path, tmp_path: Path) -> None:
    authority = Authority(kits / AUTHORITY)
    for name in ("server", "bank"):
        kit = shutil.copytree(kits / name, tmp_path / name)
        path = next((kit / "startup").glob("*.crt"))
        old = load(path)
        new = authority.renewed(old, 700)
        assert new.public_key() == old.public_key()
        assert subject_of(new) == subject_of(old)
        assert new.not_valid_after_utc - datetime.now(UTC) > timedelta(days=699)
        write_certificate(path, new)
    assert shakes_hands(tmp_path / "server", tmp_path / "bank")
    # A party's certificate is still no server's.
    shutil.copy(tmp_path / "bank" / "startup" / "client.crt", tmp_path / "bank" / "startup" / "server.crt")
    shutil.copy(tmp_path / "bank" / "startup" / "client.key", tmp_path / "bank" / "startup" / "server.key")
    assert not shakes_hands(tmp_path / "bank", tmp_path / "bank")


def test_a_rotated_key_is_the_new_one(kits: Path, tmp_path: Path) -> None:
    kit = shutil.copytree(kits / "bank", tmp_path / "bank")
    request = read_request(make_request("bank", tmp_path / "own"))
    path = kit / "startup" / "client.crt"
    write_certificate(path, Authority(kits / AUTHORITY).renewed(load(path), 30, request.public_key))
    with pytest.raises(ssl.SSLError):
        shakes_hands(kits / "server", kit)
    shutil.copy(tmp_path / "own" / "client.key", kit / "startup" / "client.key")
    assert shakes_hands(kits / "server", kit)


def test_the_authority_is_renewed_and_old_certificates_stay_valid(kits: Path, tmp_path: Path) -> None:
    own = shutil.copytree(kits / AUTHORITY, tmp_path / AUTHORITY)
    with pytest.raises(InputError, match="renew the authority first"):
        Authority(own).renewed(load(kits / "bank" / "startup" / "client.crt"), 5000)
    Authority(own).renew_root(7300)
    assert Authority(own).root.not_valid_after_utc - datetime.now(UTC) > timedelta(days=7290)
    for name in ("server", "bank"):
        kit = shutil.copytree(kits / name, tmp_path / name)
        write_certificate(kit / "startup" / "rootCA.pem", Authority(own).root)
    # With new roots at both ends, at one, and with a certificate that outlives the old root.
    assert shakes_hands(tmp_path / "server", tmp_path / "bank")
    assert shakes_hands(tmp_path / "server", kits / "bank")
    assert shakes_hands(kits / "server", tmp_path / "bank")
    path = tmp_path / "bank" / "startup" / "client.crt"
    write_certificate(path, Authority(own).renewed(load(path), 5000))
    assert shakes_hands(tmp_path / "server", tmp_path / "bank")


def test_another_authority_renews_nothing(kits: Path, tmp_path: Path) -> None:
    provision("credit", "localhost", 18002, ["bank"], tmp_path / "kits")
    with pytest.raises(InputError, match="issued by another authority"):
        Authority(tmp_path / "kits" / AUTHORITY).renewed(load(kits / "bank" / "startup" / "client.crt"), 10)
    with pytest.raises(InputError, match="is not the authority"):
        Authority(tmp_path)


def test_the_commands(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(
        '[federation]\nname = "credit"\nserver = "localhost"\nport = 18002\nparties = ["bank"]\n'
    )
    run = CliRunner().invoke
    assert run(app, ["federation", "request", "bank", "--out", f"{tmp_path}/own"]).exit_code == 0
    made = ["federation", "provision", f"{tmp_path}/federation.toml", "--out", f"{tmp_path}/kits"]
    done = run(app, [*made, "--request", f"{tmp_path}/own/request.json"])
    assert done.exit_code == 0, done.output
    assert run(app, ["federation", "install", f"{tmp_path}/kits/bank", f"{tmp_path}/own"]).exit_code == 0
    certificate = f"{tmp_path}/kits/bank/startup/client.crt"
    renew = ["federation", "renew", "--authority", f"{tmp_path}/kits/authority"]
    done = run(app, [*renew, certificate, "--days", "100", "--out", f"{tmp_path}/new.crt"])
    assert done.exit_code == 0, done.output
    assert "bank: valid until" in done.output
    done = run(app, [*renew, certificate, "--out", f"{tmp_path}/new.crt"])
    assert isinstance(done.exception, InputError)
    assert run(app, [*renew, "--out", f"{tmp_path}/rootCA.pem"]).exit_code == 0
    assert run(app, ["federation", "request", "shop", "--out", f"{tmp_path}/shop"]).exit_code == 0
    done = run(app, ["federation", "admit", f"{tmp_path}/shop/request.json", "--kits", f"{tmp_path}/kits"])
    assert done.exit_code == 0, done.output
    done = run(app, ["federation", "admit", f"{tmp_path}/shop/request.json", "--kits", f"{tmp_path}/kits"])
    assert isinstance(done.exception, InputError)


@pytest.mark.timeout(900)
def test_a_party_is_added_and_a_certificate_renewed_while_jobs_run(tmp_path: Path) -> None:
    """A fourth party joins with a key of its own; shop gets a new certificate; nobody else is stopped."""
    with running_shops(tmp_path) as shops:
        admin = shops.folder / "kits" / "admin"
        before = {name: kit.processes()[0].pid for name, kit in shops.running.items()}
        assert shops.submit()["result"]["certificate"]["converged"]
        request = read_request(make_request("notary", tmp_path / "own"))
        kit, known = admit(request, shops.folder / "kits")
        assert known.keys() == {"server", *PARTIES, "notary"}
        install_keys(kit, tmp_path / "own")
        own = tmp_path / "notary.toml"
        own.write_text('[party]\nname = "notary"\nrole = "dealer"\n')
        joined = start(kit, own, tmp_path / "notary", tmp_path / "notary.log")
        try:
            with evenhand.federation.connect(admin, 60.0) as federation:
                wait_until(lambda: federation.parties()["notary"].answers)
                renew_between_jobs(shops)
                federation.revoke("notary")
                wait_until(lambda: not federation.parties()["notary"].answers)
        finally:
            joined.stop()
        after = {name: one.processes()[0].pid for name, one in shops.running.items()}
        assert {name: after[name] for name in ("server", "bank", "phone")} == {
            name: before[name] for name in ("server", "bank", "phone")
        }
        assert shops.submit()["result"]["certificate"]["converged"]


def renew_between_jobs(shops: Shops) -> None:
    """Renew shop's certificate in a federation that goes on, then restart shop alone."""
    path = shops.folder / "kits" / "shop" / "startup" / "client.crt"
    write_certificate(path, Authority(shops.folder / "kits" / AUTHORITY).renewed(load(path), 400))
    assert shops.submit()["result"]["certificate"]["converged"]
    shops.running["shop"].stop()
    shops.start("shop")
    assert shops.submit()["result"]["certificate"]["converged"]
