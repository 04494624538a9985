"""Certificates and keys for tests: an authority, and whomever it vouches for."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Makes certificates for localhost."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP384R1())
        self._name = _name("authority of the tests")
        self._content = self._certificate(self._name, self._key.public_key(), 90.0, ca=True)

    def write(self, path: Path) -> None:
        path.write_bytes(self._content)

    def issue(self, name: str, certificate: Path, key: Path, days: float = 90.0) -> None:
        """A certificate that ends so many days from now, and its key."""
        own = write_key(key)
        certificate.write_bytes(self._certificate(_name(name), own.public_key(), days, ca=False))

    def _certificate(self, subject: x509.Name, public: Any, days: float, *, ca: bool) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        ends = now + datetime.timedelta(days=days)
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        built = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, ends) - datetime.timedelta(days=1))
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
        )
        return built.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def write_key(path: Path, shape: Any = serialization.PrivateFormat.PKCS8) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP384R1())
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, shape, serialization.NoEncryption()))
    return key


def make_node_key(folder: Path, name: str) -> None:
    """A pair of keys as `ssh-keygen -t ecdsa -b 384` makes them."""
    public = write_key(folder / f"{name}.key", serialization.PrivateFormat.OpenSSH).public_key()
    content = public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"{name}.pub").write_bytes(content)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
