"""Whether the home can be written: `gads setup`, `demo` and `ui` ask before their first step, `doctor` at any time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gads_assets.cli.main import app
from gads_assets.cli.setup import require_writable


def test_commands_that_start_at_once_do_not_disturb_each_others_probe(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: require_writable(tmp_path / "home"), range(800)))
    assert list((tmp_path / "home").iterdir()) == []


def test_doctor_creates_no_home_and_shows_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GADS_HOME", str(tmp_path / "some" / "home"))
    monkeypatch.setenv("GADS_SPARK_REMOTE", "sc://host:1/;token=secret")
    shown = CliRunner().invoke(app, ["doctor"]).output
    assert f"{tmp_path / 'some' / 'home'}, " in shown
    assert "Spark Connect at host:1" in shown
    assert "secret" not in shown
    assert list(tmp_path.iterdir()) == []
