"""A real SuperLink and SuperNodes on loopback: TLS, node keys, every one a process of its own."""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from evenhand.cli.demo_federation import free_port, wait_until_open
from evenhand.jobs.federation.files import PARTY_FILE, RUNS
from evenhand.runtime.folder import RunFolder

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
BIN = Path(sys.executable).parent


class SuperLink:
    """A SuperLink with a SuperNode for each party; a context in which they run.

    Parameters
    ----------
    parties
        Each party's own file.
    server
        The file of the party that holds the labels.
    """

    def __init__(self, folder: Path, parties: Mapping[str, Path], server: Path) -> None:
        self.folder = folder
        self.parties = parties
        self.port = free_port()
        self._stack = ExitStack()
        folder.mkdir(parents=True)
        make_certificates(folder)
        for name in parties:
            make_node_key(folder, name)
        home = folder / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "localhost:{self.port}"\n'
            f'root-certificates = "{folder / "ca.crt"}"\n'
        )
        self._server = server
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        with self._stack:
            tls = ["--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key"]
            closed = ["--enable-supernode-auth", "--disable-runtime-dependency-installation"]
            place = ["--host", "127.0.0.1", "--port", str(self.port)]
            self.start("superlink", "flower-superlink", [*tls, *closed, *place], self._server)
            wait_until_open(self.port)
            for name, file in self.parties.items():
                self.flwr("supernode", "register", str(self.folder / f"{name}.pub"), "--name", name)
                self.nodes[name] = self.start_node(name, file)
            self._stack = self._stack.pop_all()
        return self

    def start_node(self, name: str, file: Path, key: str | None = None) -> subprocess.Popen[bytes]:
        reach = ["--superlink", f"localhost:{self.port}", "--root-certificates", "ca.crt"]
        own = ["--auth-supernode-private-key", f"{key or name}.key", "--port", str(free_port())]
        return self.start(name, "flower-supernode", [*reach, *own], file)

    def start(self, name: str, program: str, arguments: list[str], party: Path) -> subprocess.Popen[bytes]:
        own = {PARTY_FILE: str(party), RUNS: str(self.folder / f"runs {name}"), "FLWR_HOME": str(self.folder / name)}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(BIN / program), *arguments],
                cwd=self.folder,
                env=os.environ | QUIET | own | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self._stack.callback(stop, process)
        return process

    def flwr(self, *arguments: str) -> str:
        home = {"FLWR_HOME": str(self.folder / "home")}
        done = subprocess.run(
            [str(BIN / "flwr"), *arguments], env=os.environ | QUIET | home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, app: Path, patience: float = 3000.0) -> tuple[str, str]:
        """Submit an app and wait: its run's number and how it ended."""
        run = str(json.loads(self.flwr("run", str(app), "--format", "json"))["run-id"])
        end = time.monotonic() + patience
        while time.monotonic() < end:
            status = str(json.loads(self.flwr("list", "--run-id", run, "--format", "json"))["runs"][0]["status"])
            if status.startswith("finished"):
                return run, status
            time.sleep(1.0)
        raise AssertionError(f"the run did not end:\n{self.log('superlink')}")

    def side(self, name: str, run: str) -> RunFolder:
        return RunFolder.open(self.folder / f"runs {name}" / run)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def stop(process: subprocess.Popen[Any]) -> None:
    """End a process and all that it has started."""
    try:
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    process.terminate()
    psutil.wait_procs(family, timeout=10)
    for one in family:
        if one.is_running():
            one.kill()
    process.wait()


def make_certificates(folder: Path) -> None:
    """A certificate authority, the server's certificate by it, and a key pair for anybody who asks."""
    key, authority = _key(folder / "ca.key"), _name("evenhand tests")
    _certificate(folder / "ca.crt", authority, key.public_key(), authority, key, ca=True)
    own = _key(folder / "server.key")
    _certificate(folder / "server.crt", _name("localhost"), own.public_key(), authority, key, ca=False)


def make_node_key(folder: Path, name: str) -> None:
    """As `ssh-keygen -t ecdsa -b 384` makes them."""
    public = _key(folder / f"{name}.key", serialization.PrivateFormat.OpenSSH).public_key()
    content = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(content)


def _key(path: Path, shape: Any = serialization.PrivateFormat.PKCS8) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP384R1())
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, shape, serialization.NoEncryption()))
    return key


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(path: Path, subject: x509.Name, public: Any, issuer: x509.Name, key: Any, *, ca: bool) -> None:
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    path.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
