"""A process that folds a home's log again and again until it is killed: python -m … HOME DATABASE_URL."""

import sys

from gads_assets.orchestration.customers import dagster_instance
from gads_assets.orchestration.status import StatusDesk
from gads_assets.orchestration.workplace import Workplace
from gads_assets.settings import read_settings


def main(home: str, database_url: str) -> None:
    with (
        Workplace(read_settings({"GADS_HOME": home, "GADS_DATABASE_URL": database_url})) as here,
        dagster_instance(here) as instance,
    ):
        desk = StatusDesk(here, instance)
        while True:
            desk.folder.fold(desk.log)
            sys.stdout.write("folded\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
