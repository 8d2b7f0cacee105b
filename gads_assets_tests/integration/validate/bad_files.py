"""Runs whose files or seals are wrong: what was done, and what the rejection must say."""

import json
from datetime import UTC, datetime

from gads_assets.raw.layout import PAYLOAD, SEAL
from gads_assets_tests.integration.validate.spoiling import (
    ROWS,
    Run,
    Spoil,
    afterwards,
    compressed,
    damage,
    file_entry,
    good,
    members,
    metadata,
    resealed,
    seal_of,
    without_member,
)

DIFFERS = rf"seal: run \w+ of .*: {PAYLOAD} has \d+ bytes and SHA-256 .* the seal says \d+ and "
NO_GZIP = rf"schema: run \w+ of .*: {PAYLOAD} was sealed as it is, but cannot be decompressed"
NOT_PLAIN = r"seal: .*metadata.json .*files must name plain files, like part-00000.jsonl.gz, not "
COUNT = r"record_count: {} rows found where the seal says {}"


def _flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def _payload_as_directory(run: Run) -> None:
    run.payload.unlink()
    run.payload.mkdir()


def _payload_as_link(run: Run) -> None:
    run.payload.unlink()
    run.payload.symlink_to("nowhere")


def _metadata_as_directory(run: Run) -> None:
    run.metadata.unlink()
    run.metadata.mkdir()


def _payload_of(run: Run) -> None:
    good(run)
    run.payload.write_bytes(run.beside(days=1, customer="1111111111").payload.read_bytes())
    run.reseal()


def _empty_payload(run: Run) -> None:
    run.seal()
    run.reseal(record_count=ROWS)


def _no_payload_named(run: Run) -> None:
    run.seal()
    run.payload.unlink()
    run.metadata.write_text(json.dumps({**run.document(), "files": []}))


def _named_twice(run: Run) -> None:
    run.seal()
    run.metadata.write_text(json.dumps({**run.document(), "files": run.document()["files"] * 2}))


def _renamed(name: str) -> Spoil:
    def spoil(run: Run) -> None:
        good(run)
        file = {**run.document()["files"][0], "name": name}
        run.payload.rename(run.folder / name)
        run.metadata.write_text(json.dumps({**run.document(), "files": [file]}))

    return spoil


def _too_early(run: Run) -> None:
    good(run)
    noon = datetime.combine(run.key.logical_date, datetime.min.time(), tzinfo=UTC).replace(hour=12)
    run.reseal(extraction_started_at=noon.isoformat())


PAYLOADS: dict[str, tuple[Spoil, str]] = {
    "cut short": (damage(lambda content: content[:-9]), DIFFERS),
    "a flipped bit": (damage(_flip), DIFFERS),
    "emptied": (damage(lambda _: b""), DIFFERS),
    "grown": (damage(lambda content: content + b"x"), DIFFERS),
    "missing": (afterwards(lambda run: run.payload.unlink()), rf"seal: .*file {PAYLOAD} is missing"),
    "a file too many": (
        afterwards(lambda run: (run.folder / "part-00001.jsonl.gz").touch()),
        r"seal: .*file part-00001.jsonl.gz is not named by the seal",
    ),
    "a hidden file": (
        afterwards(lambda run: (run.folder / ".crc").touch()),
        r"seal: .*file .crc is not named by the seal",
    ),
    "a directory too many": (
        afterwards(lambda run: (run.folder / "_temporary").mkdir()),
        r"seal: .*file _temporary is not named by the seal",
    ),
    "a directory for the payload": (afterwards(_payload_as_directory), rf"seal: .*[Dd]irectory.*{PAYLOAD}"),
    "a dangling link for the payload": (
        afterwards(_payload_as_link),
        rf"seal: .*{PAYLOAD}",
    ),
    "cut short, and sealed": (resealed(lambda content: content[:-9]), NO_GZIP),
    "cut short in the header, and sealed": (resealed(lambda content: content[:5]), NO_GZIP),
    "a flipped bit, and sealed": (resealed(_flip), NO_GZIP),
    "a wrong checksum, and sealed": (resealed(lambda content: content[:-8] + b"\0\0\0\0" + content[-4:]), NO_GZIP),
    "a wrong length, and sealed": (resealed(lambda content: content[:-4] + b"\1\0\0\0"), NO_GZIP),
    "no gzip": (resealed(lambda _: b'{"campaign_id": 1}\n'), NO_GZIP),
    "another compression": (resealed(lambda _: bytes.fromhex("28b52ffd2004210000")), NO_GZIP),
    "garbage after the gzip": (resealed(lambda content: content + b"garbage"), NO_GZIP),
    "zeros after the gzip": (resealed(lambda content: content + bytes(512)), NO_GZIP),
    "a gzip header after the gzip": (resealed(lambda content: content + content[:10]), NO_GZIP),
    "no byte": (resealed(lambda _: b"", record_count=0), NO_GZIP),
    "no byte where there are rows": (resealed(lambda _: b""), NO_GZIP),
    "no row": (_empty_payload, COUNT.format(0, ROWS)),
    "garbage in gzip": (resealed(lambda _: compressed(b"\x93\xf0\xff\x00garbage\n")), r"schema: 1 row"),
    "a gzip in a gzip": (resealed(compressed), r"schema: "),
    "the same rows in two members": (resealed(lambda content: content * 2), COUNT.format(2 * ROWS, ROWS)),
    "the payload of another run": (_payload_of, r"customer: 3 rows .*day: 3 rows"),
}

TELLING: dict[str, tuple[Spoil, str]] = {
    "too many rows promised": (members(record_count=ROWS + 1), COUNT.format(ROWS, ROWS + 1)),
    "too few rows promised": (members(record_count=ROWS - 1), COUNT.format(ROWS, ROWS - 1)),
    "no rows promised": (members(record_count=0), COUNT.format(ROWS, 0)),
    "absurdly many rows promised": (members(record_count=10**30), COUNT.format(ROWS, 10**30)),
    "an unknown schema version": (members(schema_version="99"), r"schema: schema version '99' of query 'campaign'"),
    "a schema version with a NUL": (members(schema_version="1\0"), r"schema: schema version '1\\x00'"),
    "a schema version of half a character": (members(schema_version="\ud800"), r"schema: schema version '\\ud800'"),
    "an unknown time zone": (members(account_time_zone="Mars/Olympus"), r"day_over: time zone 'Mars/Olympus'"),
    "an empty time zone": (members(account_time_zone=""), r"seal: .*account_time_zone must not be empty"),
    "a time zone outside the database": (members(account_time_zone="../../etc/passwd"), r"day_over: time zone"),
    "a time zone that is a folder": (members(account_time_zone="Europe"), r"day_over: time zone 'Europe'"),
    "a time zone with a NUL": (members(account_time_zone="Europe/Berlin\0"), r"day_over: time zone"),
    "a time zone of half a character": (members(account_time_zone="\ud800"), r"day_over: time zone"),
    "a very long time zone": (members(account_time_zone="x" * 5_000), r"day_over: time zone"),
    "extracted before the day ended": (_too_early, r"day_over: extracted .*T12:00:00\+00:00, before the account's day"),
    "extracted in the year 1": (
        members(extraction_started_at="0001-01-01T00:00:00+14:00"),
        r"day_over: extracted 0001-01-01T00:00:00\+14:00, before",
    ),
}

SEALS: dict[str, tuple[Spoil, str]] = {
    "a wrong digest": (file_entry(sha256="0" * 64), DIFFERS),
    "a wrong size": (file_entry(bytes=1), DIFFERS),
    "an absurd size": (file_entry(bytes=10**30), DIFFERS),
    "no seal": (afterwards(lambda run: run.metadata.unlink()), r"seal: run \w+ of .* has no seal"),
    "a directory for the seal": (afterwards(_metadata_as_directory), rf"seal: .*[Dd]irectory.*{SEAL}"),
    "an empty seal": (metadata(lambda _: b""), r"seal: .*metadata.json is not JSON"),
    "half a seal": (metadata(lambda content: content[:100]), r"seal: .*metadata.json is not JSON"),
    "words for a seal": (metadata(lambda _: b"sealed"), r"seal: .*metadata.json is not JSON"),
    "invalid UTF-8 in the seal": (metadata(lambda content: content.replace(b"EUR", b"\xff")), r"seal: .*is not JSON"),
    "a seal in two": (metadata(lambda content: content * 2), r"seal: .*is not JSON: Extra data"),
    "a seal of lists": (metadata(lambda content: b"[" + content + b"]"), r"seal: .*metadata.json is not an object"),
    "null for a seal": (metadata(lambda _: b"null"), r"seal: .*metadata.json is not an object"),
    "a deep seal": (metadata(lambda _: b"[" * 100_000), r"seal: .*metadata.json is not JSON"),
    "a seal of many digits": (metadata(lambda _: b"1" * 10_000), r"seal: .*metadata.json is not JSON"),
    "a very large seal": (members(gaql="x" * 30_000_000), r"seal: .*metadata.json is larger than 1048576 bytes"),
    "a very long name in the seal": (members(**{"x" * 500_000: 1}), r"seal: .*unknown members: xxx"),
    "a member too many in the seal": (members(surprise=1), r"seal: .*unknown members: surprise"),
    "a seal without a version": (without_member("manifest_version"), r"seal: .*manifest_version None"),
    "a seal of the next version": (members(manifest_version=2), r"seal: .*manifest_version 2; this code reads 1"),
    "a seal version in quotes": (members(manifest_version="1"), r"seal: .*manifest_version '1'"),
    "true for a seal version": (members(manifest_version=True), r"seal: .*manifest_version True"),
    "a seal without run_seq": (without_member("run_seq"), r"seal: .*missing .*members: run_seq"),
    "a seal without files": (without_member("files"), r"seal: .*missing .*members: files"),
    "run_seq zero": (members(run_seq=0), r"seal: .*run_seq must be from 1 to 9223372036854775807"),
    "run_seq beyond the database": (members(run_seq=2**63), r"seal: .*run_seq must be from 1"),
    "run_seq in quotes": (members(run_seq="1"), r"seal: .*run_seq must be a whole number"),
    "run_seq as a fraction": (members(run_seq=1.0), r"seal: .*run_seq must be a whole number"),
    "record_count negative": (members(record_count=-1), r"seal: .*record_count must be a whole number"),
    "record_count in quotes": (members(record_count="3"), r"seal: .*record_count must be a whole number"),
    "record_count true": (members(record_count=True), r"seal: .*record_count must be a whole number"),
    "record_count null": (members(record_count=None), r"seal: .*record_count must be a whole number"),
    "a query that is no text": (members(gaql=5), r"seal: .*gaql must be text"),
    "a time zone that is no text": (members(account_time_zone=None), r"seal: .*account_time_zone must be text"),
    "a start without a zone": (
        members(extraction_started_at="2024-07-01T00:00:00"),
        r"seal: .*extraction_started_at must .* zone",
    ),
    "a start that is no time": (members(extraction_started_at="noon"), r"seal: .*extraction_started_at must .*'noon'"),
    "the digest of another query": (members(gaql_sha256="0" * 64), r"seal: .*gaql_sha256 is not the digest of gaql"),
    "a window of other days": (
        members(window_start="1990-01-01", window_end="1990-01-02"),
        r"seal: .*window_start to window_end does not hold",
    ),
    "finished before it started": (
        members(extraction_finished_at="1990-01-01T00:00:00+00:00"),
        r"seal: .*extraction_finished_at is before extraction_started_at",
    ),
    "no currency": (members(account_currency=""), r"seal: .*account_currency must not be empty"),
    "a later number than its extraction took": (
        members(run_seq=10**9),
        r"seal: altered and sealed again: its run_seq is not as it was recorded",
    ),
    "the month 13": (members(window_start="2024-13-01"), r"seal: .*2024-13-01"),
    "the year 10000": (members(window_end="10000-01-01"), r"seal: .*10000-01-01"),
    "files that are no list": (members(files={"name": PAYLOAD}), r"seal: .*files must be a list of at least one"),
    "files null": (members(files=None), r"seal: .*files must be a list of at least one"),
    "a file that is no object": (members(files=[PAYLOAD]), r"seal: .*each of files must have name, bytes and sha256"),
    "a file without a digest": (
        members(files=[{"name": PAYLOAD, "bytes": 1}]),
        r"seal: .*each of files must have name, bytes and sha256",
    ),
    "a file with a member too many": (file_entry(surprise=1), r"seal: .*each of files must have .* nothing else"),
    "a file of negative size": (file_entry(bytes=-1), r"seal: .*files.bytes"),
    "a digest that is no text": (file_entry(sha256=0), r"seal: .*files must have a SHA-256 each"),
    "a file name that is no text": (file_entry(name=None), NOT_PLAIN),
    "a file elsewhere": (file_entry(name=f"../{PAYLOAD}"), NOT_PLAIN),
    "a file by its whole path": (file_entry(name="/etc/passwd"), NOT_PLAIN),
    "the folder above for a file": (file_entry(name=".."), NOT_PLAIN),
    "an empty file name": (file_entry(name=""), NOT_PLAIN),
    "a pattern for a file": (_renamed("part-*.jsonl.gz"), NOT_PLAIN),
    "a file that Spark passes over": (_renamed("_part-00000.jsonl.gz"), NOT_PLAIN),
    "a file not named as gzip": (_renamed("part-00000.jsonl"), NOT_PLAIN),
    "the seal itself for a file": (file_entry(name=SEAL), NOT_PLAIN),
    "no file": (_no_payload_named, r"seal: .*files must be a list of at least one"),
    "no file named": (members(files=[]), r"seal: .*files must be a list of at least one"),
    "a file named twice": (_named_twice, r"seal: .*files names a file twice"),
    "the seal of another run": (seal_of(lambda run: run.beside()), r"seal: .*carries the seal of run \w+ of"),
    "the seal of another day": (seal_of(lambda run: run.beside(days=1)), r"seal: .*carries the seal of run"),
    "the seal of another customer": (
        seal_of(lambda run: run.beside(customer="1111111111")),
        r"seal: .*carries the seal of run \w+ of google_ads/campaign 1111111111",
    ),
    "another run's id": (members(run_id="01ARZ3NDEKTSV4RRFFQ69G5FAV"), r"seal: .*run 01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    "another customer's id": (members(customer_id="1111111111"), r"seal: .*1111111111"),
    "a customer's id with words": (members(customer_id="customers/1"), r"seal: .*ten digits"),
    "another day's seal": (members(logical_date="2019-01-01"), r"seal: .*2019-01-01"),
    "another query's seal": (members(query_name="ad_group"), r"seal: .*google_ads/ad_group"),
    "another source's seal": (members(source="bing_ads"), r"seal: .*bing_ads/campaign"),
}

BAD_FILES = PAYLOADS | TELLING | SEALS
