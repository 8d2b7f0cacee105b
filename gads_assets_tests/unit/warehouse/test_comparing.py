"""The quick look at a whole query misses nothing that the closer one would find."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pyarrow as pa

from gads_assets.domain.pointer import PointerStatus
from gads_assets.domain.reconciling import compare
from gads_assets.domain.state import PartitionStatus, Reconcilable
from gads_assets.warehouse.comparing import split_by_agreement
from gads_assets.warehouse.pointers import NO_POINTERS
from gads_assets_tests.agreeing import KEY, OTHER_RUN, RUN, SHOWN, SUCCESS

STATES = [
    None,
    SUCCESS,
    replace(SUCCESS, version=9),
    replace(SUCCESS, status=PartitionStatus.FAILED, version=6),
    replace(SUCCESS, status=PartitionStatus.FAILED, current_run_id=None, schema_version=None, version=1),
    replace(SUCCESS, status=PartitionStatus.PENDING, version=7),
]
POINTERS = [
    None,
    *(
        replace(SHOWN, run_id=run, schema_version=schema_version, state_version=version, status=status)
        for run, schema_version, version, status in product((RUN, OTHER_RUN), ("1", "2"), (1, 4, 5, 9), PointerStatus)
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
