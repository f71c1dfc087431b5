"""`doctor` about Kaggle, for a user without credentials."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.kaggle.site import TOKEN

from trainmaster.answers.checks import CheckRow
from trainmaster.cli.doctor.kaggle import kaggle_checks
from trainmaster.home.paths import Home

_ROOT = Path(__file__).parents[2]


def credentials(home: Path, environment: dict[str, str]) -> CheckRow:
    found = {check.name: check for check in kaggle_checks(Home(home), environment)}
    assert found["kaggle package"].state == "ok"
    return found["kaggle credentials"]


def test_without_credentials_doctor_reports_where_to_get_and_where_to_put_them(
    tmp_path: Path,
) -> None:
    check = credentials(tmp_path, {"HOME": str(tmp_path)})
    assert check.state == "warn"
    assert "KAGGLE_API_TOKEN" in str(check.remedy)
    assert "https://www.kaggle.com/settings" in str(check.remedy)


def test_doctor_reports_the_places_in_the_order_in_which_they_count_and_no_value(
    tmp_path: Path,
) -> None:
    (tmp_path / "secrets.env").write_text(f"KAGGLE_API_TOKEN={TOKEN}\n")
    (tmp_path / "secrets.env").chmod(0o600)
    legacy = tmp_path / "config" / "kaggle.json"
    legacy.parent.mkdir()
    legacy.write_text("{}")
    environment = {"HOME": str(tmp_path), "KAGGLE_CONFIG_DIR": str(legacy.parent)}
    check = credentials(tmp_path, environment)
    assert check.state == "ok"
    assert check.found == f"KAGGLE_API_TOKEN, then {legacy}"


@pytest.mark.slow
def test_live_checks_without_any_key_fail_and_name_the_variables(tmp_path: Path) -> None:
    keys = ("KAGGLE", "RUNPOD", "VAST", "LAMBDA")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(keys)}
    home = {"HOME": str(tmp_path), "TRAINMASTER_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "tests/live"],
        cwd=_ROOT,
        env={**plain, **home},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "NOT CHECKED: KAGGLE_API_TOKEN is not set" in done.stdout
    assert "Nothing was checked" in done.stdout


@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("NvidiaL4X1", "ok", "1 x NVIDIA L4"),
        ("NvidiaTeslaP100", "warn", "gives NvidiaTeslaT4 in its place"),
        ("NvidiaL4x1", "warn", "no accelerator of this exact name"),
    ],
)
def test_doctor_checks_the_accelerator_of_the_settings(
    tmp_path: Path, name: str, state: str, said: str
) -> None:
    home = Home(tmp_path)
    home.settings.write_text(f"kaggle: {{accelerator: {name}}}\n")
    found = {check.name: check for check in kaggle_checks(home, {"HOME": str(tmp_path)})}
    check = found["kaggle accelerator"]
    assert (check.state, said in check.found) == (state, True)
