"""The keeper: put into systemd and cron, taken away again, and what its ticks leave on record."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.runs.operator import FAST
from support.runs.running_run import run_async, small_spec

from trainer_runtime.core.files.durable import try_lock
from trainer_runtime.core.protocol.desired import Desired
from trainer_runtime.core.protocol.figures import in_utc
from trainer_runtime.core.protocol.states import DesiredState
from trainmaster.answers.keeper import KeeperAnswer, TickAnswer
from trainmaster.cli.doctor.keeper import keeping_checks
from trainmaster.errors.errors import HostError, UsageError
from trainmaster.keeper import service
from trainmaster.keeper.call import Call, parse_every
from trainmaster.keeper.systemd import service as service_unit
from trainmaster.keeper.systemd import timer as timer_unit
from trainmaster.keeper.tick import tick
from trainmaster.runs.launch.launch import launch
from trainmaster.store.control.instances import RentedInstance, RentState
from trainmaster.sync.keeper_state import keeper_problem, read_last_tick, record_installed, ticking
from trainmaster.sync.workspace import Workspace, open_workspace

ODD_NAME = "100% of $HOME's"
NEIGHBOUR = "# a note\n\n  17 3 * * *   echo 'not ours' \\% # Trainmaster's keeper of nothing\n"
FAKE_SYSTEMCTL = """\
#!/bin/sh
echo "$@" >> "$(dirname "$0")/calls"
"""


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Workspace]:
    """A home whose name wants quoting everywhere."""
    with open_workspace({"TRAINMASTER_HOME": str(tmp_path / ODD_NAME)}) as opened:
        yield opened


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment in which no program is found, and a user's folder of its own."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "user")}


@pytest.fixture
def systemd(bare: dict[str, str]) -> dict[str, str]:
    """One with a `systemctl` that records its arguments."""
    program = Path(bare["PATH"]) / "systemctl"
    program.write_text(FAKE_SYSTEMCTL)
    program.chmod(0o755)
    return {**bare, "PATH": f"{bare['PATH']}:{os.environ['PATH']}"}


@pytest.fixture
def cron(bare: dict[str, str]) -> Iterator[dict[str, str]]:
    """One with the real crontab of the current user, restored afterwards."""
    program = shutil.which("crontab")
    assert program is not None
    before = subprocess.run([program, "-l"], capture_output=True, text=True)
    (Path(bare["PATH"]) / "crontab").symlink_to(program)
    set_crontab(NEIGHBOUR)
    yield bare
    if before.returncode == 0:
        set_crontab(before.stdout)
    else:
        subprocess.run([program, "-r"], capture_output=True)


def set_crontab(text: str) -> None:
    subprocess.run(["crontab", "-"], input=text, text=True, check=True)


def crontab() -> str:
    return subprocess.run(["crontab", "-l"], capture_output=True, text=True, check=True).stdout


def calls(environment: dict[str, str]) -> list[str]:
    return (Path(environment["PATH"].split(":")[0]) / "calls").read_text().splitlines()


def installed(workspace: Workspace, environment: dict[str, str], every: str = "5m") -> KeeperAnswer:
    return run_async(lambda: service.install(workspace, environment, every=every))


def removed(workspace: Workspace, environment: dict[str, str]) -> KeeperAnswer:
    return run_async(lambda: service.remove(workspace, environment))


def status(workspace: Workspace, environment: dict[str, str]) -> KeeperAnswer:
    return run_async(lambda: service.status(workspace, environment))


def test_cron_gets_one_line_per_home_and_loses_no_other(
    odd: Workspace, workspace: Workspace, cron: dict[str, str]
) -> None:
    installed(odd, cron)
    answer = installed(odd, cron, "10m")
    assert (answer.by, answer.every, answer.installed) == ("cron", "10m", True)
    assert answer.wrote is not None
    assert crontab() == f"{NEIGHBOUR}{answer.wrote['crontab']}\n"
    other = installed(workspace, cron)
    assert other.wrote is not None
    assert removed(odd, cron).removed == ["crontab"]
    assert crontab() == f"{NEIGHBOUR}{other.wrote['crontab']}\n"
    assert not status(odd, cron).installed
    assert status(workspace, cron).installed
    removed(workspace, cron)
    assert removed(workspace, cron).removed == []
    assert crontab() == NEIGHBOUR


def test_a_crontab_with_nothing_else_in_it_is_gone_afterwards(
    workspace: Workspace, cron: dict[str, str]
) -> None:
    subprocess.run(["crontab", "-r"], check=True)
    installed(workspace, cron)
    removed(workspace, cron)
    assert subprocess.run(["crontab", "-l"], capture_output=True).returncode == 1


def test_the_line_for_cron_ticks_without_any_of_our_variables(
    odd: Workspace, cron: dict[str, str], tmp_path: Path
) -> None:
    wrote = installed(odd, cron).wrote
    assert wrote is not None
    when, command = re.fullmatch(r"((?:\S+ ){5})(.*)", wrote["crontab"]).groups()  # type: ignore[union-attr]
    assert when == "*/5 * * * * "
    assert not re.search(r"(?<!\\)%", command)  # where cron would end it
    plain = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    subprocess.run(["/bin/sh", "-c", command.replace("\\%", "%")], env=plain, cwd="/", check=True)
    answer = status(odd, cron)
    assert (answer.last_tick, answer.overdue) == ("done", False)
    assert (odd.home.root / "keeper.log").read_text() == '{"runs":[]}\n'


def test_systemd_gets_a_timer_and_loses_only_ours(
    odd: Workspace, workspace: Workspace, systemd: dict[str, str]
) -> None:
    answer = installed(odd, systemd, "10m")
    assert (answer.by, answer.every) == ("systemd", "10m")
    assert answer.wrote is not None
    assert {Path(path).read_text() for path in answer.wrote} == set(answer.wrote.values())
    unit = next(Path(path) for path in answer.wrote if path.endswith(".timer"))
    assert unit.parent == Path(systemd["HOME"]) / ".config/systemd/user"
    assert calls(systemd)[1:4] == [
        "--user daemon-reload",
        f"--user enable {unit.name}",
        f"--user restart {unit.name}",
    ]
    others = installed(workspace, systemd).wrote
    assert others is not None
    assert set(removed(odd, systemd).removed or ()) == set(answer.wrote)
    assert calls(systemd)[-2:] == [f"--user disable --now {unit.name}", "--user daemon-reload"]
    assert {str(path) for path in unit.parent.iterdir()} == set(others)
    assert status(workspace, systemd).installed
    assert not status(odd, systemd).installed


@pytest.mark.parametrize("every", ["1m", "20m", "1h"])
def test_systemd_understands_the_units(tmp_path: Path, every: str) -> None:
    call = Call(shutil.which("python3") or "", tmp_path / ODD_NAME, parse_every(every))
    units = {"k.service": service_unit(call), "k.timer": timer_unit(call)}
    for name, text in units.items():
        (tmp_path / name).write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "--user", "verify", *(str(tmp_path / name) for name in units)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (verified.returncode, verified.stderr) == (0, "")


def test_where_nothing_can_call_it_that_is_reported(
    workspace: Workspace, bare: dict[str, str]
) -> None:
    with pytest.raises(HostError) as caught:
        installed(workspace, bare)
    assert caught.value.code == "SCHEDULER_MISSING"
    assert "crontab is not there" in caught.value.message
    assert "--print" in caught.value.fix
    assert removed(workspace, bare).removed == []
    shown = run_async(lambda: service.text(workspace, bare))
    assert len(shown.wrote or ()) == 3
    assert not Path(bare["HOME"]).exists()


@pytest.mark.parametrize("every", ["7m", "90s", "2h", "soon", "0m"])
def test_an_interval_that_cron_can_not_keep_is_refused(
    workspace: Workspace, bare: dict[str, str], every: str
) -> None:
    with pytest.raises(UsageError, match="interval"):
        installed(workspace, bare, every)


def test_keys_that_a_timer_would_miss_are_named_and_never_shown(
    workspace: Workspace, systemd: dict[str, str]
) -> None:
    environment = {**systemd, "RUNPOD_API_KEY": "rpa_SECRET", "HOOK": "https://hook.example/SECRET"}
    workspace.home.settings.write_text("destinations: {ops: {kind: slack, url_secret: HOOK}}\n")
    answer = installed(workspace, environment)
    assert answer.put_into_secrets_env == ["HOOK", "RUNPOD_API_KEY"]
    assert "SECRET" not in answer.model_dump_json()
    workspace.home.secrets_env.write_text("RUNPOD_API_KEY=rpa_SECRET\nHOOK=https://hook.example\n")
    workspace.home.secrets_env.chmod(0o600)
    assert status(workspace, environment).put_into_secrets_env is None


def test_two_ticks_never_overlap(workspace: Workspace) -> None:
    held = try_lock(workspace.home.keeper_lock)
    assert held is not None
    try:
        answer = run_async(lambda: tick(workspace))
    finally:
        os.close(held)
    assert answer.note is not None
    assert read_last_tick(workspace.home) is None


@pytest.mark.slow
def test_a_keeper_that_stays_away_is_reported(workspace: Workspace) -> None:
    home = workspace.home
    assert keeper_problem(home, 0.0) == "no keeper is installed"
    run_async(lambda: tick(workspace))
    ticked = read_last_tick(home)
    assert ticked is not None
    assert keeper_problem(home, ticked.began_t) == "no keeper is installed"  # that was no timer
    record_installed(home, 300.0)
    at = home.keeper_installed.stat().st_mtime
    assert keeper_problem(home, at + 890.0) is None
    assert "has not run since" in str(keeper_problem(home, at + 910.0))
    os.utime(home.keeper_installed, (at - 9000.0, at - 9000.0))
    run_async(lambda: tick(workspace, every="5m"))
    assert keeper_problem(home, at) is None
    run_async(lambda: tick(workspace))  # by hand: the timer's own tick stays on record
    assert keeper_problem(home, at) is None


def test_a_tick_that_was_killed_is_no_success(
    workspace: Workspace, systemd: dict[str, str]
) -> None:
    with pytest.raises(RuntimeError), ticking(workspace.home, 300.0):
        raise RuntimeError
    ticked = read_last_tick(workspace.home)
    assert ticked is not None and ticked.ended_t is None
    assert status(workspace, systemd).last_tick == "failed"
    with ticking(workspace.home, 300.0):
        assert status(workspace, systemd).last_tick == "at work"


@pytest.mark.slow
def test_a_run_that_fails_stops_no_other(workspace: Workspace, tmp_path: Path) -> None:
    async def work() -> TickAnswer:
        launched = await launch(workspace, small_spec(tmp_path, host="debug", env=FAST))
        run = workspace.control.run(launched.run_id)
        desired = Desired(DesiredState.RUNNING, generation=1)
        for name in ("gone", "lost"):
            other = replace(run, run_id=f"{name}-aaaaaa", name=name, host=name)
            workspace.control.add_run(other, desired, "process", f"/{name}", None)
        return await tick(workspace)

    did = {row.run_id: row.did[0] for row in run_async(work).runs if row.did}
    both = ["gone-aaaaaa", "lost-aaaaaa"]
    assert all(did[run_id].startswith("HOST_UNKNOWN") for run_id in both)
    ticked = read_last_tick(workspace.home)
    assert ticked is not None and ticked.ended_t is not None
    assert sorted(ticked.failed) == both


def test_doctor_reports_the_keeper_and_of_keys(
    workspace: Workspace, systemd: dict[str, str]
) -> None:
    def checked() -> list[tuple[str, str]]:
        rows = run_async(lambda: keeping_checks(workspace, environment))
        assert all(row.state == "ok" or row.remedy for row in rows)
        assert "rpa_SECRET" not in str(rows)
        return [(row.state, row.found) for row in rows]

    environment = dict(systemd)
    assert checked() == [("warn", "not installed"), ("warn", "none")]
    installed(workspace, environment)
    run_async(lambda: tick(workspace, every="5m"))
    assert checked()[0][0] == "ok"
    environment["RUNPOD_API_KEY"] = "rpa_SECRET"
    assert checked()[1] == ("ok", "RUNPOD_API_KEY in the environment")
    assert checked()[0][0] == "warn"  # a timer has it not


def test_doctor_reports_what_ends_each_rented_instance(
    workspace: Workspace, systemd: dict[str, str]
) -> None:
    def checked() -> dict[str, tuple[str, str]]:
        rows = run_async(lambda: keeping_checks(workspace, environment))
        return {row.name: (row.state, row.found) for row in rows if row.name.startswith("lease of")}

    environment, now = dict(systemd), time.time()
    installed(workspace, environment)
    run_async(lambda: tick(workspace, every="5m"))
    for name, by_itself, left_s in (("able", True, 6e4), ("unable", False, 6e4), ("past", True, 0)):
        tag = f"tm-0a1b2c-{name}"
        instance = RentedInstance(
            tag, name, "runpod", RentState.READY, "1", now, now + left_s, 1.0, 1.0,
            can_self_terminate=by_itself,
            lease_timer="Can't end the instance: the provider answered 403.",
        )  # fmt: skip
        workspace.control.instances.add(instance)
    ended = f"ended {in_utc(now)}; the instance is still on record"
    assert checked()["lease of past"] == ("warn", ended)
    workspace.control.instances.change("tm-0a1b2c-past", RentState.ENDED, ended_t=now)
    assert checked()["lease of unable"][0] == "warn"  # the keeper hasn't the provider's key
    workspace.home.secrets_env.write_text("RUNPOD_API_KEY=rpa_SECRET\n")
    workspace.home.secrets_env.chmod(0o600)
    assert checked()["lease of able"][1].endswith("ended by the keeper and its own timer")
    assert checked()["lease of unable"][1].endswith("ended by the keeper")
    environment |= {"HOME": "/nowhere", "XDG_CONFIG_HOME": "/nowhere"}  # without that keeper
    workspace.home.keeper_installed.unlink()
    found = checked()
    assert found["lease of able"][0] == "ok" and found["lease of able"][1].endswith("its own timer")
    assert found["lease of unable"][0] == "warn" and "answered 403" in found["lease of unable"][1]
    workspace.control.instances.change("tm-0a1b2c-able", RentState.ENDED, ended_t=now)
    assert list(checked()) == ["lease of unable"]
