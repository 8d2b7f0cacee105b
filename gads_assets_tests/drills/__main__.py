"""`make drill`: crash and kill what publishes, and count what readers were shown that they should not have been.

The last line is one JSON document: {"drill": {"kills": 44, "lost": 0, ...}}. Anything but zero damage exits 1.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gads_assets.orchestration.workplace import open_session
from gads_assets.settings import read_settings
from gads_assets.state.migration import migrate
from gads_assets.state.server import running_database
from gads_assets_tests.acceptance.commands import Home
from gads_assets_tests.drills.damage import Report, say
from gads_assets_tests.drills.demo import DemoDrill
from gads_assets_tests.drills.publishing import FULL, PublishingDrill


def kill_the_demo(folder: Path, arguments: argparse.Namespace) -> Report:
    return DemoDrill(folder, kills=arguments.kills, seed=arguments.seed).run()


def publish_under_readers(folder: Path, arguments: argparse.Namespace) -> Report:
    home = Home(path=folder)
    extent = replace(FULL, replacements=arguments.replacements)
    session = open_session(read_settings(home.environment()))
    try:
        with running_database(home.settings.database_home, None) as url:
            migrate(url)
            return PublishingDrill(folder, url, lambda: session, extent, seed=arguments.seed).run()
    finally:
        session.stop()


DRILLS = {"demo": kill_the_demo, "publishing": publish_under_readers}


def main() -> None:
    parser = argparse.ArgumentParser(prog="make drill", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=DRILLS)
    parser.add_argument("--kills", type=int, default=20, help="of the demo")
    parser.add_argument("--replacements", type=int, default=FULL.replacements, help="that are published under readers")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10_000))
    arguments = parser.parse_args()
    say(f"seed {arguments.seed}; the same choices again: make drill SEED={arguments.seed}")
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gads-drill-"))
    report = sum(
        (drill(folder / name, arguments) for name, drill in DRILLS.items() if arguments.only in (None, name)),
        start=Report(),
    )
    failed = bool(report.damage.sentences())
    if failed:
        say("\n".join(report.damage.sentences()))
        say(f"what is left to look at is in {folder}")
    else:
        shutil.rmtree(folder)
    counts = {"kills": report.kills, **report.damage.counts(), **report.facts, "reads": report.reads}
    seconds = round(time.monotonic() - started)
    sys.stdout.write(json.dumps({"drill": {**counts, "seed": arguments.seed, "seconds": seconds}}) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
