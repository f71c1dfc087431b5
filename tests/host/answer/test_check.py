"""What stands between a machine and a training: each row by itself, each with its remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.runs.running_run import kill

from trainer_runtime.core.processes.cgroup_limits import limits

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[3]
_GPUS = """\
0, GPU-aaaa, NVIDIA H100 80GB HBM3, 550.54.15, 81559, {used}
1, GPU-bbbb, NVIDIA H100 80GB HBM3, 550.54.15, 81559, 4
"""
_NVIDIA_SMI = """\
#!/bin/sh
case "$1" in
    --query-gpu=*) cat "{folder}/gpus" ;;
    --query-compute-apps=*) cat "{folder}/apps" ;;
esac
"""
Checked = dict[str, dict[str, Any]]
Check = Callable[..., Checked]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder that stands first on the PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


@pytest.fixture
def check(programs: Path, tmp_path: Path) -> Check:
    def run(root: Path = tmp_path / "root", *, within_s: float = 1.0) -> Checked:
        command = [sys.executable, "-m", "trainer_runtime", "check", str(root)]
        command += [str(tmp_path / "cache"), "--within", str(within_s)]
        environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
        }
        begun_t = time.time()
        done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert begun_t <= answer["time"] <= time.time()
        rows = {row["name"]: row for row in answer["checks"]}
        assert [
            name for name, row in rows.items() if row["state"] != "ok" and not row["remedy"]
        ] == []
        return rows

    return run


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def nvidia_smi(folder: Path, apps: str = "", used: str = "4") -> None:
    (folder / "gpus").write_text(_GPUS.format(used=used))
    (folder / "apps").write_text(apps)
    program(folder, "nvidia-smi", _NVIDIA_SMI.format(folder=folder))


def test_every_row_of_a_sound_machine_is_reported_and_nothing_is_changed(
    check: Check, tmp_path: Path
) -> None:
    rows = check()
    wanted = {"python", "environments", "frameworks", "tmux or screen", "root", "cache", "torch"}
    assert wanted | {"cores and memory", "/dev/shm"} <= set(rows)
    assert rows["root"]["found"].startswith(f"{tmp_path}/root, ")
    assert [path.name for path in tmp_path.iterdir()] == ["programs"]


def test_a_root_below_a_file_fails_and_the_rest_is_still_reported(
    check: Check, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    rows = check(tmp_path / "file" / "root")
    assert rows["root"]["state"] == "fail"
    assert "can't be written" in rows["root"]["found"]
    assert "--root" in rows["root"]["remedy"]
    assert rows["cache"]["state"] != "fail"
    assert "torch" in rows


def test_gpus_that_are_free_have_driver_and_memory(check: Check, programs: Path) -> None:
    nvidia_smi(programs)
    rows = check()
    found = "NVIDIA H100 80GB HBM3, 79.7 GiB, driver 550.54.15, free"
    assert (rows["gpu 0"]["state"], rows["gpu 0"]["found"]) == ("ok", found)
    assert rows["gpu 1"]["found"] == found


def test_who_holds_a_gpu_is_named_with_pid_and_memory(check: Check, programs: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as holder:
        try:
            apps = f"GPU-aaaa, {holder.pid}, 40960\nGPU-aaaa, 4194000, 1024\n"
            nvidia_smi(programs, apps, used="43008")
            rows = check()
        finally:
            kill(holder.pid)
    assert rows["gpu 0"]["state"] == "warn"
    assert f"root, pid {holder.pid} (sleep) 40 GiB" in rows["gpu 0"]["found"]
    assert "pid 4194000 (not to be seen from here) 1 GiB" in rows["gpu 0"]["found"]
    assert rows["gpu 1"]["state"] == "ok"


def test_a_run_of_ours_that_holds_a_gpu_is_named_by_its_id(check: Check, programs: Path) -> None:
    environment = {**os.environ, "TRAINMASTER_ATTEMPT": "gpt-abc234/3"}
    with subprocess.Popen(["sleep", "600"], env=environment) as holder:
        try:
            nvidia_smi(programs, f"GPU-bbbb, {holder.pid}, 2048\n")
            rows = check()
        finally:
            kill(holder.pid)
    assert "(run gpt-abc234)" in rows["gpu 1"]["found"]


def test_memory_held_by_invisible_processes_is_reported(check: Check, programs: Path) -> None:
    nvidia_smi(programs, used="20480")
    found = check()["gpu 0"]
    assert found["state"] == "warn"
    assert "20 GiB by processes that can't be seen from here" in found["found"]


def test_a_driver_that_does_not_answer_fails_with_its_words(check: Check, programs: Path) -> None:
    words = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    program(programs, "nvidia-smi", f'#!/bin/sh\necho "{words}"\nexit 9\n')
    found = check()["gpu"]
    assert found["state"] == "fail"
    assert words in found["found"]


@pytest.mark.long  # the next one asks PyTorch too
def test_a_pytorch_that_sees_no_gpu_says_why(check: Check, programs: Path) -> None:
    nvidia_smi(programs)
    found = check(within_s=240.0)["torch"]
    assert found["state"] == "warn"
    assert "gpu 0: " in found["found"]
    assert "CUDA" in found["found"]


def test_a_pytorch_without_gpus_computes_on_the_processor(check: Check) -> None:
    found = check(within_s=240.0)["torch"]
    assert found["state"] == "ok"
    assert "computes on the processor" in found["found"]


@pytest.mark.parametrize(("lingers", "state"), [("no", "warn"), ("yes", "ok")])
def test_processes_that_are_killed_at_logout_are_warned_of(lingers: str, state: str) -> None:
    script = f"""#!/bin/sh
case "$*" in
    *KillUserProcesses*) echo KillUserProcesses=yes ;;
    *Linger*nobody*) echo Linger={lingers} ;;
esac
"""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)  # pytest's own folders are closed to others
        program(Path(name), "loginctl", script)
        row = checked_as_nobody(Path(name))["logging out"]
    assert row["state"] == state
    assert ("enable-linger nobody" in str(row["remedy"])) is (lingers == "no")


def checked_as_nobody(programs: Path) -> Checked:
    if os.getuid() != 0:
        pytest.skip("another user can be had by root alone")
    # What it imports may be closed to others, and is read before.
    script = (
        "import json, os, sys\n"
        "from pathlib import Path\n"
        "from trainer_runtime.host.answer import check, check_gpus\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "print(json.dumps(check.check(Path(sys.argv[1]), Path(sys.argv[1]), 1.0)['checks']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(programs)],
        cwd=PROJECT,
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)}


def machine(folder: Path, groups: str, files: Mapping[str, str]) -> Path:
    """The files of `/proc` and `/sys` that hold the limits."""
    known = {"proc/meminfo": "MemTotal:       67108864 kB\n", "proc/self/cgroup": groups}
    for name, text in {**known, **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_the_tightest_limit_above_a_process_counts(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "0::/user.slice/user-7.slice/session.scope\n",
        {
            "sys/fs/cgroup/user.slice/user-7.slice/memory.max": f"{8 << 30}\n",
            "sys/fs/cgroup/user.slice/memory.max": "max\n",
            "sys/fs/cgroup/user.slice/cpu.max": "50000 100000\n",
            "sys/fs/cgroup/user.slice/user-7.slice/cpu.max": "max 100000\n",
        },
    )
    found = limits(root)
    assert (found.memory_bytes, found.memory_there_bytes) == (8 << 30, 64 << 30)
    assert found.cores == 0.5


def test_limits_of_the_first_version_count_too(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n3:devices:/\n",
        {
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 << 30}\n",
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
    )
    assert (limits(root).memory_bytes, limits(root).cores) == (4 << 30, 0.25)


def test_no_limits_leave_what_is_there(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        "0::/\n4:memory:/x\n",
        {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"},
    )
    found = limits(root)
    assert found.memory_bytes == found.memory_there_bytes
    assert found.cores == len(os.sched_getaffinity(0))


def test_plain_commands_report_what_they_can_without_an_interpreter(
    tmp_path: Path, programs: Path
) -> None:
    nvidia_smi(programs)
    script = PROJECT / "trainer_runtime" / "host" / "answer" / "check_plain.sh"
    (tmp_path / "file").write_text("no folder")
    done = subprocess.run(
        ["/bin/sh", "-s", str(tmp_path / "file" / "root"), str(tmp_path / "a b")],
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        input=script.read_text(),
        capture_output=True,
        text=True,
    )
    rows = {
        fields[1]: fields[2:] for line in done.stdout.splitlines() if (fields := line.split("\t"))
    }
    assert rows["root"][0] == "fail"
    assert rows["cache"][0] == "ok"
    assert "a b" in rows["cache"][1]
    assert "gpu 0" in rows
