"""Certificates of a federation: requests that parties make with keys of their own, signing, renewal, dates.

The authority is a folder with the key that signs. It holds nobody else's key: a party makes its own and sends a
request, or gets a kit with a key that is then in no other place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from evenhand.errors import InputError, MissingExtraError, RunError
from evenhand.protocol.identity import PUBLIC_BYTES, Identity, is_signed, new_identity
from evenhand.runtime.files import make_folder, write_bytes
from evenhand.runtime.identityfiles import FOLDER, write_identity

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, CertificateSigningRequest

CERTIFICATES: Final = ("client.crt", "server.crt")
ROOT: Final = "rootCA.pem"
DAYS: Final = 365
ROOT_DAYS: Final = 3650
REQUEST: Final = "request.json"
_SIGNED: Final = b"evenhand request 1 "
_KEY: Final = "client.key"
_STATE: Final = "cert.json"
_BITS: Final = 2048


class Authority:
    """The folder with the key that signs certificates of a federation."""

    def __init__(self, folder: Path) -> None:
        x509, _, serialization = _libraries()
        self._path = folder / _STATE
        try:
            state = json.loads(self._path.read_text(encoding="utf-8"))
            self.root: Certificate = x509.load_pem_x509_certificate(state["root_cert"].encode())
            self._key: Any = serialization.load_pem_private_key(state["root_pri_key"].encode(), password=None)
        except (OSError, ValueError, LookupError, AttributeError) as error:
            raise InputError(f"{folder} is not the authority of a federation: {self._path} cannot be read") from error

    def forget_keys(self) -> None:
        """Remove all keys but the authority's own: each is in its owner's kit, and nowhere else."""
        state = json.loads(self._path.read_text(encoding="utf-8"))
        _write(self._path, {name: state[name] for name in ("root_cert", "root_pri_key")})

    def limited(self, given: Certificate, *, server: bool) -> Certificate:
        """Return a certificate with the one use that it is for: a party's certificate is no server's.

        FLARE's client does not compare the server's certificate with the host name. Without this, any participant with
        a kit could pose as the server to the others. TLS refuses a certificate that is used for anything else.
        """
        return self._signed(given, given.public_key(), given.not_valid_before_utc, given.not_valid_after_utc, server)

    def certified(self, given: Certificate, public_key: Any, days: int) -> Certificate:
        """Return a party's certificate for another key."""
        return self._signed(given, public_key, *self._dates(days), server=False)

    def renewed(self, given: Certificate, days: int, public_key: Any = None) -> Certificate:
        """Return the same certificate with new dates, and with another key if one is given."""
        x509, _, _ = _libraries()
        try:
            given.verify_directly_issued_by(self.root)
        except Exception as error:
            raise InputError(f"the certificate of {subject_of(given)} was issued by another authority") from error
        uses = [one.value for one in given.extensions if isinstance(one.value, x509.ExtendedKeyUsage)]
        if not uses:
            raise InputError(f"the certificate of {subject_of(given)} does not say what it is for; make a new kit")
        server = x509.oid.ExtendedKeyUsageOID.SERVER_AUTH in uses[0]
        begins, ends = self._dates(days)
        return self._signed(given, public_key or given.public_key(), begins, ends, server)

    def _dates(self, days: int) -> tuple[datetime, datetime]:
        # A little earlier, for clocks that differ.
        begins = datetime.now(UTC) - timedelta(minutes=5)
        ends = begins + timedelta(days=days)
        if ends > self.root.not_valid_after_utc:
            raise InputError(
                f"the authority's own certificate ends on {self.root.not_valid_after_utc:%Y-%m-%d}, before a "
                f"certificate of {days} days would; renew the authority first"
            )
        return begins, ends

    def _signed(
        self, given: Certificate, public_key: Any, begins: datetime, ends: datetime, server: bool
    ) -> Certificate:
        x509, hashes, _ = _libraries()
        use = x509.oid.ExtendedKeyUsageOID
        kept = [
            one
            for one in given.extensions
            if not isinstance(
                one.value, x509.ExtendedKeyUsage | x509.SubjectKeyIdentifier | x509.AuthorityKeyIdentifier
            )
        ]
        uses = [use.CLIENT_AUTH, use.SERVER_AUTH] if server else [use.CLIENT_AUTH]
        builder = (
            x509.CertificateBuilder(extensions=kept)
            .subject_name(given.subject)
            .issuer_name(self.root.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.root.public_key()), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=True)
        )
        found: Certificate = builder.sign(self._key, hashes.SHA256())
        return found

    def renew_root(self, days: int) -> Certificate:
        """Give the authority's own certificate new dates; its key stays, so certificates that it signed stay valid."""
        x509, hashes, _ = _libraries()
        begins = datetime.now(UTC) - timedelta(minutes=5)
        builder = (
            x509.CertificateBuilder(extensions=list(self.root.extensions))
            .subject_name(self.root.subject)
            .issuer_name(self.root.subject)
            .public_key(self.root.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + timedelta(days=days))
        )
        self.root = builder.sign(self._key, hashes.SHA256())
        state = json.loads(self._path.read_text(encoding="utf-8"))
        _write(self._path, state | {"root_cert": pem(self.root).decode()})
        return self.root


class Request(NamedTuple):
    """What a party sends to be admitted: a signing request, and the public half of the identity that has signed it."""

    name: str
    signing: CertificateSigningRequest
    identity: bytes

    @property
    def public_key(self) -> Any:
        return self.signing.public_key()


def make_request(name: str, folder: Path) -> Path:
    """Make a party's keys in a folder of its own, and return the file with the request to send."""
    x509, hashes, serialization = _libraries()
    from cryptography.hazmat.primitives.asymmetric import rsa

    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; keys are never overwritten: choose another folder")
    make_folder(folder, private=True)
    key = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
    subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
    signing = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    write_bytes(folder / _KEY, key.private_bytes(*form), private=True)
    own = Identity(name, new_identity(), {})
    write_identity(folder / FOLDER, Identity(name, own.secret, {name: own.public}))
    content = {
        "name": name,
        "request": signing.public_bytes(serialization.Encoding.PEM).decode(),
        "identity": own.public.hex(),
        # Who compares the fingerprint of the identity has then compared the key of the certificate too.
        "signature": own.sign(_SIGNED + signing.public_bytes(serialization.Encoding.DER)).hex(),
    }
    _write(folder / REQUEST, content)
    return folder / REQUEST


def read_request(path: Path) -> Request:
    """Read a party's request; refuse one whose sender does not have the key, or that is for another name."""
    x509, _, serialization = _libraries()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        signing = x509.load_pem_x509_csr(content["request"].encode())
        identity, signature = bytes.fromhex(content["identity"]), bytes.fromhex(content["signature"])
        name = str(content["name"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a request; a party makes one with evenhand federation request") from error
    if not signing.is_signature_valid or subject_of(signing) != name or len(identity) != PUBLIC_BYTES:
        raise InputError(f"{path} is not a valid request of {name!r}: its signature or its name is wrong")
    if not is_signed(identity, _SIGNED + signing.public_bytes(serialization.Encoding.DER), signature):
        raise InputError(f"{path}: the identity in it has not signed the request of {name!r}; do not admit it")
    return Request(name, signing, identity)


def install_keys(kit: Path, folder: Path) -> None:
    """Put a party's own keys into the kit that was made for its request."""
    _, _, serialization = _libraries()
    path = certificate_in(kit / "startup")
    key: Any = serialization.load_pem_private_key((folder / _KEY).read_bytes(), password=None)
    if key.public_key() != load(path).public_key():
        raise InputError(f"the certificate in {kit} is for another key than that in {folder}; ask for a kit again")
    write_bytes(path.with_suffix(".key"), (folder / _KEY).read_bytes(), private=True)
    own = folder / FOLDER / "identity.toml"
    write_bytes(kit / FOLDER / own.name, own.read_bytes(), private=True)


def check_certificate(kit: Path) -> None:
    """Refuse an expired or not yet valid certificate here, because the other side would not explain its refusal."""
    path = certificate_in(kit / "startup")
    found = load(path)
    now = datetime.now(UTC)
    if now > found.not_valid_after_utc:
        raise RunError(
            f"the certificate of {kit} expired on {found.not_valid_after_utc:%Y-%m-%d}; get it renewed "
            "(evenhand federation renew)"
        )
    if now < found.not_valid_before_utc:
        raise RunError(
            f"the certificate of {kit} is not valid before {found.not_valid_before_utc:%Y-%m-%d %H:%M} (UTC), but it "
            f"is {now:%Y-%m-%d %H:%M}; check this machine's clock"
        )
    if not path.with_suffix(".key").is_file():
        raise RunError(f"{kit} has no key: put yours into it with evenhand federation install {kit} FOLDER")


def certificate_in(startup: Path) -> Path:
    path = next((startup / name for name in CERTIFICATES if (startup / name).is_file()), None)
    if path is None:
        raise RunError(f"{startup.parent} is not a kit that evenhand made: it has no certificate in startup/")
    return path


def load(path: Path) -> Certificate:
    x509, _, _ = _libraries()
    try:
        found: Certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise RunError(f"{path} is not a certificate (PEM)") from error
    return found


def pem(certificate: Certificate) -> bytes:
    _, _, serialization = _libraries()
    return certificate.public_bytes(serialization.Encoding.PEM)


def write_certificate(path: Path, certificate: Certificate) -> None:
    write_bytes(path, pem(certificate), private=True)


def subject_of(certificate: Certificate | CertificateSigningRequest) -> str:
    """Return the name that a certificate or a request is for."""
    x509, _, _ = _libraries()
    found: Sequence[Any] = certificate.subject.get_attributes_for_oid(x509.oid.NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def _write(path: Path, content: Any) -> None:
    write_bytes(path, json.dumps(content, indent=1).encode(), private=True)


def _libraries() -> tuple[Any, Any, Any]:
    """FLARE installs them; a machine that only makes kits may have FLARE in another environment."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
    except ImportError as error:
        raise MissingExtraError("certificates", "nvflare") from error
    return x509, hashes, serialization
