"""LitGPT's script as processes of their own: killed, told to end, and two ranks of them."""

from __future__ import annotations

import contextlib
import copy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from litgpt_training import STEPS, Config, Run, assert_same_tensors, resolved, with_text

from trainer_runtime.core.manifest import verify

pytestmark = pytest.mark.xdist_group("litgpt")
SAVING = "checkpoints/.writing-by-framework/step-*/lit_model.pth"
TIMEOUT_S = 240


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("litgpt")
    return with_text(resolved(folder / "cache"), folder)


def test_what_a_kill_in_a_save_and_a_signal_leave_is_gone_on_with_exactly(
    base: Config, tmp_path: Path
) -> None:
    config = copy.deepcopy(base)
    # So many steps that neither kill nor signal comes too late.
    config |= {"steps": 40, "eval": {"every_steps": None, "batches": 1}}
    config["checkpoint"]["every"] = 1
    run = Run(tmp_path / "run", config)

    killed = start(run)
    until(killed, lambda: len(run.steps_stored()) > 2 and any(run.folder.glob(SAVING)))
    assert end(killed, signal.SIGKILL) == -signal.SIGKILL
    left = [folder for folder in run.folder.glob("checkpoints/step-*") if not verify(folder)]
    assert len(left) >= 2

    told = start(run, number=2)
    until(told, lambda: len(run.told(2)) > 3)
    assert end(told, signal.SIGTERM) == 75
    started, *_ = run.events(2)
    assert started["resumed_from"] == max(int(folder.name[5:]) for folder in left)
    stopped_at = max(step for _, step in run.told(2))
    assert run.steps_stored()[-1] == stopped_at

    run.config |= {"steps": 40, "checkpoint": {**config["checkpoint"], "every": 40}}
    straight = Run(tmp_path / "straight", run.config)
    assert run.train(number=3) == straight.train() == 0
    assert run.events(3)[0]["resumed_from"] == stopped_at
    pieces = {**run.told(), **run.told(2), **run.told(3)}
    assert pieces == straight.told()
    assert_same_tensors(run.weights(), straight.weights())


def test_two_ranks_go_on_as_one_would(base: Config, tmp_path: Path) -> None:
    config = {**copy.deepcopy(base), "precision": "fp32"}
    one = Run(tmp_path / "one", config)
    assert one.train() == 0

    ranks = copy.deepcopy(config)
    ranks["batch"]["micro_batch"] = config["batch"]["micro_batch"] // 2
    ranks["compute"] |= {"processes": 2, "strategy": "ddp"}
    two = Run(tmp_path / "two", ranks)
    name = "checkpoints/step-00000004"
    shutil.copytree(one.folder / name, two.folder / name)
    launched(two, number=2)

    started = two.events(2)[0]
    assert (started["resumed_from"], started["world_size"]) == (4, 2)
    assert losses(two, 2) == pytest.approx(losses(one)[4:], rel=1e-4)
    newest = two.folder / f"checkpoints/step-{STEPS:08d}"
    assert verify(newest) == []
    assert {path.name for path in newest.glob("rank-*")} == {"rank-0.json", "rank-1.json"}
    assert two.events(2)[-1]["kind"] == "completed"


def losses(run: Run, attempt: int | None = None) -> list[float]:
    return [told[0] for (kind, _), told in run.told(attempt).items() if kind == "metric"]


def start(run: Run, **attempt: int) -> subprocess.Popen[bytes]:
    with (run.folder / "train.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *run.command(**attempt)],
            cwd=run.folder,
            env=run.environment,
            stdout=log,
            stderr=log,
        )


def launched(run: Run, **attempt: int) -> None:
    """Trains by torchrun to a good end."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    local = ["--local-addr", "127.0.0.1"]
    done = subprocess.run(
        [sys.executable, *torchrun, *local, *run.command(**attempt)],
        cwd=run.folder,
        env={**run.environment, "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def until(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    while not happened():
        assert process.poll() is None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)


def end(process: subprocess.Popen[bytes], with_signal: int) -> int:
    process.send_signal(with_signal)
    return process.wait(timeout=TIMEOUT_S)
