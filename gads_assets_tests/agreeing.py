"""A partition about which the ledger and the warehouse agree; tests change what they are about with `replace`."""

from datetime import UTC, date, datetime

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.state import PartitionState, PartitionStatus

NOW = datetime(2024, 6, 3, tzinfo=UTC)
KEY = PartitionKey(
    source="google_ads", customer_id=CustomerId("1234567890"), query_name="campaign", logical_date=date(2024, 6, 1)
)
RUN, OTHER_RUN = RunId("01HZX000000000000000000001"), RunId("01HZX000000000000000000002")
SUCCESS = PartitionState(
    key=KEY,
    status=PartitionStatus.SUCCESS,
    current_run_id=RUN,
    current_run_seq=7,
    schema_version="1",
    record_count=2,
    updated_at=NOW,
    error_message=None,
    attempt_count=1,
    version=4,
)
SHOWN = Pointer(
    key=KEY,
    run_id=RUN,
    stage_id=StageId("A"),
    schema_version="1",
    record_count=2,
    content_digest="digest",
    state_version=4,
    stage_commit=0,
    status=PointerStatus.ACTIVE,
    loaded_at=NOW,
)
