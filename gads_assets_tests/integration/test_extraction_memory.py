"""The largest day that an account may have passes through in bounded memory."""

import json
import subprocess
import sys
from pathlib import Path

from gads_assets_tests.integration.test_emulator_serving import running_command

ROWS = 2_000_000
MOST_MEGABYTES = 600

# In a process of its own, whose peak is its own too: getrusage would count what the test run had when it forked.
EXTRACT = """
import json, sys
from datetime import UTC, date, datetime
from pathlib import Path
from ulid import ULID
from gads_assets.catalog.loading import load_catalog
from gads_assets.extract.client import connect_to_emulator
from gads_assets.extract.customer_days import extract_days
from gads_assets.raw.sink import RawSink
from gads_assets_tests.agencies import enabled_accounts

facts, raw = json.loads(sys.argv[1]), sys.argv[2]
catalog = load_catalog(None)
login = facts["login_customer_id"]
source = connect_to_emulator(
    facts["endpoint"], Path(facts["ca_path"]), api_version=catalog.api_version, login_customer_id=login
)
account = enabled_accounts(source)[0]
[run] = extract_days(
    source=source, sink=RawSink(raw), specification=catalog.query("search_term_view"), account=account,
    days=[date(2024, 6, 4)], run_seq=lambda: 1, new_run_id=lambda: str(ULID()), now=lambda: datetime.now(UTC),
    code_version="test",
)
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps([run.record_count, int(peak.split()[1]) // 1024]))
"""


def test_two_million_rows_of_one_day_are_sealed_in_bounded_memory(tmp_path: Path) -> None:
    with running_command(tmp_path / "home", "--json", "--fault", f"rows@*/search_term_view/*:{ROWS}") as emulator:
        assert emulator.stdout is not None
        facts = json.dumps(json.loads(emulator.stdout.readline()))
        command = [sys.executable, "-c", EXTRACT, facts, str(tmp_path / "raw")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    rows, megabytes = json.loads(done.stdout)

    assert rows == ROWS
    assert megabytes < MOST_MEGABYTES
