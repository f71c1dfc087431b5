"""LitGPT's script in separate processes: killed, ended by a signal, and with two ranks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.host.run_configs import Config, changed
from support.host.tiny_training import REPOSITORY
from support.plan.rendered import SCRIPT
from support.runs.running_run import begin_with, standing_after, wait_until
from support.train.litgpt_training import STEPS, Run, assert_same_tensors, pretraining
from support.train.ranks_on_cpu import CPU_AS_GPU_IN_LIGHTNING

from trainer_runtime.core.files.manifest import verify

pytestmark = pytest.mark.engine

SAVING = "checkpoints/.writing-by-framework/step-*/lit_model.pth"
TIMEOUT_S = 240
# From one strategy to the other; TRAINMASTER_STRATEGIES has both ways tried.
WAYS = [("fsdp", "single"), ("single", "fsdp")][
    : 2 if os.environ.get("TRAINMASTER_STRATEGIES") else 1
]
# Ends the first attempt in its fifth save, when the model is written and the rest is not.
KILLED = """\
import os, signal, sys

def strike(event, arguments):
    if event == "open" and str(arguments[0]).endswith("/step-5/rank-0.json"):
        os.kill(os.getpid(), signal.SIGKILL)

if sys.orig_argv[-1] == "config.json":
    sys.addaudithook(strike)
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("litgpt")
    return pretraining(folder)


def test_a_run_continues_exactly_after_a_kill_in_a_save_and_after_a_signal(
    base: Config, tmp_path: Path
) -> None:
    config = changed(base, {"steps": 20, "eval__every_steps": None, "checkpoint__every": 1})
    run = Run(tmp_path / "run", config)
    begin_with(run.folder / "own", KILLED + standing_after(10, 2))

    assert start(run).wait(timeout=TIMEOUT_S) == -signal.SIGKILL
    assert any(run.folder.glob(SAVING))
    left = [folder for folder in run.folder.glob("checkpoints/step-*") if not verify(folder)]
    assert len(left) >= 2

    second = start(run, number=2)
    until(second, lambda: len(run.values_by_step(2)) > 3)
    assert end(second, signal.SIGTERM) == 75
    started, *_ = run.events_of(2)
    assert started["resumed_from"] == max(int(folder.name[5:]) for folder in left)
    stopped_at = max(step for _, step in run.values_by_step(2))
    assert run.steps_stored()[-1] == stopped_at

    straight = Run(tmp_path / "straight", changed(config, {"checkpoint__every": 20}))
    assert run.train(number=3) == straight.train() == 0
    assert run.events_of(3)[0]["resumed_from"] == stopped_at
    pieces = {**run.values_by_step(), **run.values_by_step(2), **run.values_by_step(3)}
    assert pieces == straight.values_by_step()
    assert_same_tensors(run.model(), straight.model())


def test_two_ranks_train_as_one_would(base: Config, tmp_path: Path) -> None:
    """Also by an objective that is more than the cross-entropy."""
    terms = {"optimizer__z_loss": 0.01, "optimizer__label_smoothing": 0.1}
    one = Run(tmp_path / "one", changed(base, {"precision": "fp32", **terms}))
    assert one.train() == 0

    ranks = {"batch__micro_batch": 2, "compute__processes": 2, "compute__strategy": "ddp"}
    two = Run(tmp_path / "two", changed(one.config, ranks))
    name = "checkpoints/step-00000004"
    shutil.copytree(one.folder / name, two.folder / name)
    launched(two, number=2)

    started = two.events_of(2)[0]
    assert (started["resumed_from"], started["world_size"]) == (4, 2)
    assert "new_random_numbers" in [event.get("what") for event in two.events_of(2)]
    assert losses(two, 2) == pytest.approx(losses(one)[4:], rel=1e-4)
    assert norms(two, 2) == pytest.approx(norms(one)[4:], rel=1e-3)
    newest = two.folder / f"checkpoints/step-{STEPS:08d}"
    assert verify(newest) == []
    assert {path.name for path in newest.glob("rank-*")} == {"rank-0.json", "rank-1.json"}
    assert two.events_of(2)[-1]["kind"] == "completed"


@pytest.mark.parametrize(("before", "after"), WAYS)
def test_a_model_that_is_shared_out_continues_whole_and_the_other_way_round(
    base: Config, tmp_path: Path, before: str, after: str
) -> None:
    """With the optimizer's state, which FSDP names and others number; the first steps agree
    whatever the optimizer remembers, the later ones don't."""

    def of(strategy: str) -> Run:
        ranks = 2 if strategy == "fsdp" else 1
        shape = {"batch__micro_batch": 4 // ranks, "compute__processes": ranks}
        changes = {"precision": "fp32", "compute__strategy": strategy, "steps": 8, **shape}
        run = Run(tmp_path / strategy, changed(base, changes))
        begin_with(run.folder / "own", CPU_AS_GPU_IN_LIGHTNING)
        return run

    whole, other = of(before), of(after)
    trained(whole, number=1)
    name = "checkpoints/step-00000004"
    shutil.copytree(whole.folder / name, other.folder / name)
    trained(other, number=2)

    assert other.events_of(2)[0]["resumed_from"] == 4
    assert losses(other, 2) == pytest.approx(losses(whole, 1)[4:], rel=1e-5)
    assert other.events_of(2)[-1]["kind"] == "completed"


def losses(run: Run, attempt: int | None = None) -> list[float]:
    return [
        values[0] for (kind, _), values in run.values_by_step(attempt).items() if kind == "metric"
    ]


def norms(run: Run, attempt: int | None = None) -> list[float]:
    return [
        values[1] for (kind, _), values in run.values_by_step(attempt).items() if kind == "metric"
    ]


def start(run: Run, **attempt: int) -> subprocess.Popen[bytes]:
    name = run.attempt_config(**attempt) if attempt else "config.json"
    with (run.folder / "train.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, SCRIPT, name],
            cwd=run.folder,
            env={**run.environment, "PYTHONPATH": f"{run.folder / 'own'}:{REPOSITORY}"},
            stdout=log,
            stderr=log,
        )


def trained(run: Run, **attempt: int) -> None:
    """Trains to a good end: several ranks by torchrun, one in this process."""
    if run.config["compute"]["processes"] == 1:
        assert run.train(**attempt) == 0
    else:
        launched(run, **attempt)


def launched(run: Run, **attempt: int) -> None:
    """Trains by torchrun to a good end."""
    ranks = str(run.config["compute"]["processes"])
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks]
    local = ["--local-addr", "127.0.0.1"]
    name = run.attempt_config(**attempt)
    done = subprocess.run(
        [sys.executable, *torchrun, *local, SCRIPT, name],
        cwd=run.folder,
        env={
            **run.environment,
            "PYTHONPATH": f"{run.folder / 'own'}:{REPOSITORY}",
            "GLOO_SOCKET_IFNAME": "lo",
        },
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def until(process: subprocess.Popen[bytes], happened: Callable[[], bool]) -> None:
    def met() -> bool:
        assert process.poll() is None
        return happened()

    wait_until(met, "what the process comes to", TIMEOUT_S)


def end(process: subprocess.Popen[bytes], with_signal: int) -> int:
    process.send_signal(with_signal)
    return process.wait(timeout=TIMEOUT_S)
