"""The control plane's schedule in a test's own database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from gads_assets.domain.roles import Role
from gads_assets.state.partition_states import StateStore
from gads_assets.state.schedule import Schedule
from gads_assets_tests.integration.control.schedules import Desk
from gads_assets_tests.integration.control.simulated_agency import SOURCE
from gads_assets_tests.operators import Gads, Office, in_process, opened_office


@pytest.fixture
def desk(engine: Engine, acting: Callable[[Role], Engine]) -> Desk:
    return Desk(engine=engine, schedule=Schedule(acting(Role.OPERATOR), source=SOURCE), store=StateStore(engine))


@pytest.fixture
def office(database_url: str, tmp_path: Path) -> Iterator[Office]:
    with opened_office(tmp_path, database_url) as made:
        yield made


@pytest.fixture
def gads(office: Office, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gads:
    return in_process(office, monkeypatch, capsys)
