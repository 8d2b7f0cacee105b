import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from gads_assets.emulator.authority import localhost_identity
from gads_assets.errors import SetupError

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def test_the_authority_is_made_once_and_signs_every_later_certificate(tmp_path: Path) -> None:
    first = localhost_identity(tmp_path / "home", now=NOW)
    authority = first.ca_path.read_bytes()
    second = localhost_identity(tmp_path / "home", now=NOW + timedelta(days=1000))
    assert second.ca_path.read_bytes() == authority
    assert second.certificate != first.certificate
    for identity in (first, second):
        certificate = x509.load_pem_x509_certificate(identity.certificate)
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority))


def test_an_authority_that_could_not_outlive_a_server_is_renewed(tmp_path: Path) -> None:
    before = localhost_identity(tmp_path, now=NOW).ca_path.read_bytes()
    later = NOW + timedelta(days=3500)
    renewed = localhost_identity(tmp_path, now=later)
    authority = x509.load_pem_x509_certificate(renewed.ca_path.read_bytes())
    server = x509.load_pem_x509_certificate(renewed.certificate)
    assert renewed.ca_path.read_bytes() != before
    assert later < server.not_valid_after_utc <= authority.not_valid_after_utc


def test_processes_that_start_together_agree_on_one_authority(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        identities = list(pool.map(lambda _: localhost_identity(tmp_path, now=NOW), range(16)))
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
    for identity in identities:
        x509.load_pem_x509_certificate(identity.certificate).verify_directly_issued_by(authority)


@pytest.mark.parametrize("damage", ["", "not a certificate"])
def test_damaged_or_half_written_files_are_replaced(tmp_path: Path, damage: str) -> None:
    localhost_identity(tmp_path, now=NOW)
    for name in ("ca.pem", "authority.pem"):
        (tmp_path / name).write_text(damage)
        identity = localhost_identity(tmp_path, now=NOW)
        authority = x509.load_pem_x509_certificate((tmp_path / "ca.pem").read_bytes())
        x509.load_pem_x509_certificate(identity.certificate).verify_directly_issued_by(authority)


def test_the_private_key_is_for_its_owner_only(tmp_path: Path) -> None:
    localhost_identity(tmp_path, now=NOW)
    assert stat.S_IMODE((tmp_path / "authority.pem").stat().st_mode) == 0o600


def test_a_home_that_cannot_be_written_is_one_line_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SetupError, match="set GADS_HOME to a writable place") as refusal:
        localhost_identity(tmp_path / "file" / "home", now=NOW)
    assert "\n" not in str(refusal.value)
