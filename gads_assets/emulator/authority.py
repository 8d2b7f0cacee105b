"""The certificate authority that makes loopback TLS possible; no other machine has a reason to trust it.

The authority is kept under the emulator's home and shared by all its processes. Server certificates are made at
every start and never stored, so nothing on disk can go stale while a server runs.
"""

import fcntl
import ipaddress
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from gads_assets.errors import SetupError

CA_FILE = "ca.pem"
_PRIVATE_FILE = "authority.pem"
_LIFETIME = timedelta(days=3650)
_SERVER_LIFETIME = timedelta(days=365)
# A server certificate must never outlive its authority.
_RENEWAL = _SERVER_LIFETIME + timedelta(days=30)
_CLOCK_SKEW = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class ServerIdentity:
    private_key: bytes
    certificate: bytes
    ca_path: Path


@dataclass(frozen=True, kw_only=True)
class _Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def localhost_identity(home: Path, *, now: datetime) -> ServerIdentity:
    """A fresh certificate for localhost, signed by the home's authority, which is made or renewed if need be."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home):
            authority = _load(home, now=now) or _create(home, now=now)
    except OSError as error:
        raise SetupError(
            f"the emulator cannot keep its certificates in {home} ({error.strerror or error}); "
            "set GADS_HOME to a writable place with free space"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _unsigned(_name("localhost"), key, issuer=authority.certificate.subject, now=now, lifetime=_SERVER_LIFETIME)
        .add_extension(
            x509.SubjectAlternativeName(
                [
                    x509.DNSName("localhost"),
                    x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                    x509.IPAddress(ipaddress.ip_address("::1")),
                ]
            ),
            critical=False,
        )
        .sign(authority.key, hashes.SHA256())
    )
    return ServerIdentity(
        private_key=_private_pem(key),
        certificate=certificate.public_bytes(Encoding.PEM),
        ca_path=home / CA_FILE,
    )


def _load(home: Path, *, now: datetime) -> _Authority | None:
    try:
        content = (home / _PRIVATE_FILE).read_bytes()
        key = load_pem_private_key(content, password=None)
        certificate = x509.load_pem_x509_certificate(content)
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return None
    if now < certificate.not_valid_before_utc or now > certificate.not_valid_after_utc - _RENEWAL:
        return None
    # A crash between the two files of `_create`, or a hand, may have left another certificate for clients.
    public = certificate.public_bytes(Encoding.PEM)
    with suppress(FileNotFoundError):
        if (home / CA_FILE).read_bytes() == public:
            return _Authority(key=key, certificate=certificate)
    _replace(home / CA_FILE, public, mode=0o644)
    return _Authority(key=key, certificate=certificate)


def _create(home: Path, *, now: datetime) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("gads emulator: this machine only")
    certificate = (
        _unsigned(name, key, issuer=name, now=now, lifetime=_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = certificate.public_bytes(Encoding.PEM)
    _replace(home / _PRIVATE_FILE, _private_pem(key) + public, mode=0o600)
    _replace(home / CA_FILE, public, mode=0o644)
    return _Authority(key=key, certificate=certificate)


def _unsigned(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    *,
    issuer: x509.Name,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + lifetime)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _replace(path: Path, content: bytes, *, mode: int) -> None:
    """Readers see the old file or the new one, never half of it."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, mode)
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    with (home / ".lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
