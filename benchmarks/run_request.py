"""`python -m benchmarks.run_request`: carries out the request for a run that standard input holds, in a process of its
own, as Dagster's launcher does."""

import json
import os
import sys

import dagster as dg

from gads_assets.definitions import defs
from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.requested_runs import carry_out
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings


def main() -> int:
    asked = json.load(sys.stdin)
    request = dg.RunRequest(
        run_key=asked["run_key"],
        asset_selection=[dg.AssetKey(path) for path in asked["assets"]],
        tags=asked["tags"],
    )
    with Workplace(read_settings(os.environ)) as here, dagster_instance(here) as instance:
        return 0 if carry_out(defs, instance, request).success else 1


if __name__ == "__main__":
    sys.exit(main())
