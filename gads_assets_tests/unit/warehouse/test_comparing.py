"""The quick look at a whole query misses nothing that the closer one would find."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import product

import pyarrow as pa

from gads_assets.domain.keys import CustomerId, PartitionKey, RunId, StageId
from gads_assets.domain.pointer import Pointer, PointerStatus
from gads_assets.domain.reconciling import compare
from gads_assets.domain.state import PartitionState, PartitionStatus, Reconcilable
from gads_assets.warehouse.comparing import split_by_agreement
from gads_assets.warehouse.pointers import NO_POINTERS

NOW = datetime(2024, 6, 3, tzinfo=UTC)
RUN, OTHER = RunId("run 1"), RunId("run 2")
KEY = PartitionKey(
    source="google_ads", customer_id=CustomerId("1234567890"), query_name="campaign", logical_date=date(2020, 1, 1)
)
STATE = PartitionState(
    key=KEY,
    status=PartitionStatus.SUCCESS,
    current_run_id=RUN,
    current_run_seq=7,
    schema_version="1",
    record_count=3,
    updated_at=NOW,
    error_message=None,
    attempt_count=1,
    version=4,
)
POINTER = Pointer(
    key=KEY,
    run_id=RUN,
    stage_id=StageId("A"),
    schema_version="1",
    record_count=3,
    content_digest="digest",
    state_version=4,
    stage_commit=0,
    status=PointerStatus.ACTIVE,
    loaded_at=NOW,
)
STATES = [
    None,
    STATE,
    replace(STATE, version=9),
    replace(STATE, status=PartitionStatus.FAILED, version=6),
    replace(STATE, status=PartitionStatus.FAILED, current_run_id=None, schema_version=None, version=1),
    replace(STATE, status=PartitionStatus.PENDING, version=7),
]
POINTERS = [
    None,
    *(
        replace(POINTER, run_id=run, schema_version=schema_version, state_version=version, status=status)
        for run, schema_version, version, status in product((RUN, OTHER), ("1", "2"), (1, 4, 5, 9), PointerStatus)
    ),
]
CASES = [
    (replace(KEY, logical_date=KEY.logical_date + timedelta(days=number)), state, pointer, is_being_withdrawn)
    for number, (state, pointer, is_being_withdrawn) in enumerate(product(STATES, POINTERS, (False, True)))
    if (state or pointer) and (state or not is_being_withdrawn)
]


def test_what_agrees_at_a_glance_agrees_and_whatever_differs_is_looked_at() -> None:
    states = [(key, state, withdrawn) for key, state, _, withdrawn in CASES if state]
    columns: dict[str, list[object]] = {
        "customer_id": [key.customer_id for key, _, _ in states],
        "logical_date": [key.logical_date for key, _, _ in states],
        "status": [state.status for _, state, _ in states],
        "authority": [state.current_run_id for _, state, _ in states],
        "authority_schema_version": [state.schema_version for _, state, _ in states],
        "version": [state.version for _, state, _ in states],
        "is_being_withdrawn": [withdrawn for _, _, withdrawn in states],
    }
    rows = [
        {
            "customer_id": key.customer_id,
            "logical_date": key.logical_date,
            "run_id": pointer.run_id,
            "schema_version": pointer.schema_version,
            "state_version": pointer.state_version,
            "status": pointer.status.value,
        }
        for key, _, pointer, _ in CASES
        if pointer
    ]

    agreed, doubtful = split_by_agreement(columns, pa.Table.from_pylist(rows, NO_POINTERS.schema))

    agreed_days, doubtful_days = (set(table["logical_date"].to_pylist()) for table in (agreed, doubtful))
    assert not agreed_days & doubtful_days
    for key, state, pointer, withdrawn in CASES:
        closer = [
            compare(
                {
                    key: Reconcilable(
                        state=state,
                        is_being_withdrawn=withdrawn,
                        knows_pointer=known,
                        spoke_since_pointer=spoke,
                        adopted_pointer=False,
                        version_floor=None,
                    )
                },
                {key: pointer} if pointer else {},
            )
            for known, spoke in product((False, True), repeat=2)
        ]
        is_shown = pointer is not None and pointer.status is PointerStatus.ACTIVE
        case = (state, pointer, withdrawn)
        if key.logical_date not in doubtful_days:
            assert not any(closer), case
            assert (key.logical_date in agreed_days) == is_shown, case
        elif not any(closer):
            raise AssertionError(f"{case} is looked at in vain")


def test_a_query_of_which_there_is_nothing_agrees() -> None:
    nothing: dict[str, list[object]] = {
        name: []
        for name in (
            *("customer_id", "logical_date", "status", "authority", "authority_schema_version", "version"),
            "is_being_withdrawn",
        )
    }
    agreed, doubtful = split_by_agreement(nothing, NO_POINTERS)
    assert (agreed.num_rows, doubtful.num_rows) == (0, 0)
