from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer_runtime.core.checkpoints.kept_checkpoints import PINNED_CHECKPOINTS, pinned_document
from trainer_runtime.core.files.manifest import verify
from trainer_runtime.train.attempt.config import CheckpointConfig, ConfigError, ResumeConfig
from trainer_runtime.train.attempt.events import EventLog
from trainer_runtime.train.attempt.nan_guard import NonFiniteError
from trainer_runtime.train.checkpoints.cadence import MEASURED_STEPS, Cadence, best_interval_s
from trainer_runtime.train.checkpoints.checkpoint import Checkpoint, Checkpoints
from trainer_runtime.train.checkpoints.checkpoint_store import (
    CheckpointStore,
    Origin,
    checkpoint_name,
    stored_steps,
)
from trainer_runtime.train.checkpoints.restore import MODEL, OPTIMIZER, Restored, find, load_model
from trainer_runtime.train.checkpoints.retention import Retention, Stored

REPOSITORY = Path(__file__).parents[3]
FAULT_ROUNDS = int(os.environ.get("TRAINMASTER_FAULT_ROUNDS", "3"))
KEEP_ALL = Retention(100, 0, None, "val_loss")
FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json")
NEWEST = ResumeConfig()


def of_step(step: int, size: int = 1000, value: float | None = None) -> Checkpoint:
    filled = torch.full((size,), float(step) if value is None else value)
    return Checkpoint(
        step, {MODEL: {"w": filled}, OPTIMIZER: {"m": filled / 2}}, {"step": step}, {}
    )


class Run:
    """Checkpoints and their events in a folder."""

    def __init__(
        self, folder: Path, retention: Retention = KEEP_ALL, started_from: int = 0
    ) -> None:
        self.folder = folder / "checkpoints"
        self.events_path = folder / "events.jsonl"
        self.events = EventLog(self.events_path)
        origin = Origin(1, "0" * 64, started_from)
        store = CheckpointStore(self.folder, origin, retention, self.events)
        self.checkpoints = Checkpoints(store, self.events)

    def save(self, *steps: int, **metrics: float) -> None:
        for step in steps:
            made = of_step(step)
            self.checkpoints.save(Checkpoint(step, made.tensors, made.state, metrics))
            self.checkpoints.wait()

    def actions(self) -> list[tuple[str, int]]:
        events = map(json.loads, self.events_path.read_text().splitlines())
        return [(e["action"], e["step"]) for e in events if e["kind"] == "checkpoint"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path)
    yield run
    run.checkpoints.close()


def found(folder: Path, resume: ResumeConfig = NEWEST) -> tuple[int | None, dict[int, str]]:
    restored, skipped = find(folder, resume)
    return restored.step if restored else None, {entry.step: entry.reason for entry in skipped}


def test_a_save_is_read_back_before_it_is_called_verified(run: Run) -> None:
    run.save(50)
    assert run.actions() == [("saved", 50), ("verified", 50)]
    restored, _ = find(run.folder, NEWEST)
    assert isinstance(restored, Restored)
    assert torch.equal(restored.model["w"], torch.full((1000,), 50.0))
    assert restored.state == {"step": 50}


def test_what_is_saved_is_the_state_at_the_call(run: Run) -> None:
    made = of_step(1, size=1 << 20)
    run.checkpoints.save(made)
    made.tensors[MODEL]["w"].fill_(7.0)
    run.checkpoints.wait()
    restored, _ = find(run.folder, NEWEST)
    assert restored is not None
    assert restored.model["w"].unique().tolist() == [1.0]


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_in_any_file_sends_back_to_the_checkpoint_before(run: Run, file: str) -> None:
    run.save(50, 100)
    damaged = run.folder / checkpoint_name(100) / file
    data = bytearray(damaged.read_bytes())
    data[random.Random(1337).randrange(len(data))] ^= 4
    damaged.write_bytes(data)
    step, skipped = found(run.folder)
    assert step == 50
    assert list(skipped) == [100]
    assert file in skipped[100]


@pytest.mark.parametrize("file", FILES)
def test_a_truncated_or_missing_file_sends_back_as_well(run: Run, file: str) -> None:
    run.save(50, 100, 150)
    truncated = run.folder / checkpoint_name(150) / file
    os.truncate(truncated, truncated.stat().st_size // 2)
    (run.folder / checkpoint_name(100) / file).unlink()
    step, skipped = found(run.folder)
    assert step == 50
    assert list(skipped) == [150, 100]
    assert all(file in reason for reason in skipped.values())


def test_candidates_are_tried_in_their_order(run: Run) -> None:
    run.save(50, 100, 150)
    assert found(run.folder, ResumeConfig("latest", (100, 150)))[0] == 100
    assert found(run.folder, ResumeConfig("latest", (120, 50))) == (
        50,
        {120: "the folder does not exist"},
    )
    assert found(run.folder, ResumeConfig("latest", ())) == (None, {})
    assert found(run.folder, ResumeConfig("scratch"))[0] is None
    assert found(run.folder, ResumeConfig("step", (50,)))[0] == 50
    with pytest.raises(ConfigError, match="120"):
        find(run.folder, ResumeConfig("step", (120, 50)))


def test_only_verified_saves_push_older_ones_out(tmp_path: Path) -> None:
    run = Run(tmp_path, Retention(2, 0, None, "val_loss"))
    run.save(1, 2, 3, 4)
    assert stored_steps(run.folder) == [3, 4]
    actions = run.actions()
    assert actions.index(("verified", 3)) < actions.index(("pruned", 1))


def test_the_best_and_the_periodic_ones_stay(tmp_path: Path) -> None:
    run = Run(tmp_path, Retention(1, 1, 4, "val_loss"))
    for step, loss in enumerate([3.0, 2.0, 2.5, 2.6, 2.7, 2.8], start=1):
        run.save(step, val_loss=loss)
    assert stored_steps(run.folder) == [2, 4, 6]


def test_what_the_run_holds_is_not_pruned_until_it_is_let_go(tmp_path: Path) -> None:
    run = Run(tmp_path, Retention(1, 0, None, "val_loss"))
    pinned = run.folder.parent / PINNED_CHECKPOINTS
    pinned.write_text(json.dumps(pinned_document({2})))
    run.save(1, 2, 3, 4)
    assert stored_steps(run.folder) == [2, 4]
    pinned.write_text(json.dumps(pinned_document(())))
    run.save(5)
    assert stored_steps(run.folder) == [5]


def test_the_last_verified_one_is_never_pruned() -> None:
    stored = [Stored(10, {}), Stored(20, {}), Stored(30, {})]
    assert Retention(0, 0, None, "val_loss").to_prune(stored, 10, {20, 30}) == [20]
    assert Retention(0, 0, None, "val_loss").to_prune(stored, 30, {10, 20}) == [10, 20]


@pytest.mark.parametrize("metric", ["accuracy", "val_rewards/margins", "val_reward"])
def test_more_is_better_for_accuracies_and_rewards(metric: str) -> None:
    stored = [Stored(1, {metric: 0.5}), Stored(2, {metric: 0.9}), Stored(3, {})]
    assert Retention(1, 1, None, metric).best(stored) == [2]


def test_a_step_that_is_saved_again_is_replaced(tmp_path: Path) -> None:
    Run(tmp_path).save(50, 100)
    run = Run(tmp_path, started_from=50)
    run.save(100)
    assert stored_steps(run.folder) == [50, 100]
    assert found(run.folder) == (100, {})


def test_leftovers_of_killed_writers_are_removed_at_the_start(tmp_path: Path) -> None:
    for name in (".writing-step-00000050-12", ".old-step-00000050-12"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    run = Run(tmp_path)
    assert list(run.folder.iterdir()) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_non_finite_weights_are_never_saved(run: Run, value: float) -> None:
    run.save(50)
    with pytest.raises(NonFiniteError, match="step 100: w nan"):
        run.checkpoints.save(of_step(100, value=value))
    assert run.actions()[-1] == ("failed", 100)
    assert stored_steps(run.folder) == [50]


def test_large_finite_weights_are_saved_though_their_sum_overflows(run: Run) -> None:
    run.checkpoints.save(of_step(50, value=3e38))
    run.checkpoints.wait()
    assert stored_steps(run.folder) == [50]


def test_a_full_disk_fails_the_save_and_not_the_training(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, __file__, "full-disk", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=120,
    )
    assert done.returncode == 0
    run = Run(tmp_path)
    assert run.actions() == [
        ("saved", 1),
        ("verified", 1),
        ("failed", 2),
        ("saved", 3),
        ("verified", 3),
    ]
    assert stored_steps(run.folder) == [1, 3]
    assert [path.name for path in run.folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.long
def test_a_kill_at_any_moment_leaves_every_verified_checkpoint_whole(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for _ in range(FAULT_ROUNDS):
        process = subprocess.Popen(
            [sys.executable, __file__, "save-forever", str(tmp_path)],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        process.stdout.readline()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(moments.uniform(0.0, 0.3))
        process.kill()
        process.wait()
        process.stdout.close()
        # A folder under its final name is whole, whatever the moment.
        folder = tmp_path / "checkpoints"
        assert all(verify(folder / checkpoint_name(step)) == [] for step in stored_steps(folder))
        assert found(folder)[0] is not None


def test_weights_of_another_model_are_refused() -> None:
    model = torch.nn.Linear(2, 3)
    with pytest.raises(ConfigError, match="weight is"):
        load_model(model, {"weight": torch.ones(2, 2), "bias": torch.ones(3)})
    with pytest.raises(ConfigError, match="another model: bias"):
        load_model(model, {"weight": torch.ones(3, 2)})


def test_the_cadence_counts_steps_or_seconds() -> None:
    by_steps = Cadence.of(CheckpointConfig(every=50), 0, 0.0)
    assert [step for step in range(1, 151) if by_steps.is_due(step, 1e9, None)] == [50, 100, 150]
    by_clock = Cadence.of(CheckpointConfig(every="10m"), 0, 1000.0)
    assert not by_clock.is_due(7, 1599.0, None)
    assert by_clock.is_due(7, 1600.0, None)


def test_a_save_by_the_clock_waits_for_an_evaluation_that_is_near() -> None:
    cadence = Cadence.of(CheckpointConfig(every="10m"), 0, 0.0)
    assert not cadence.is_due(7, 600.0, evaluation_in_s=100.0)
    assert cadence.is_due(7, 600.0, evaluation_in_s=0.0)
    assert cadence.is_due(7, 600.0, evaluation_in_s=200.0)


def test_an_automatic_cadence_saves_once_to_measure_then_decides() -> None:
    cadence = Cadence.of(CheckpointConfig(every="10m", every_is_auto=True), 100, 0.0)
    assert cadence.is_due(100 + MEASURED_STEPS, 5.0, None)
    cadence.decide(stall_s=0.1, write_s=2.0, job_s=1800.0)
    assert cadence.interval_s == pytest.approx((2 * 0.1 * 86400) ** 0.5)
    assert not cadence.is_due(100 + MEASURED_STEPS, 5.0, None)


@pytest.mark.parametrize(
    ("stall_s", "write_s", "job_s", "expected_s"),
    [
        (0.001, 1.0, 1800.0, 60.0),
        (60.0, 5.0, 1800.0, 600.0),
        (60.0, 5.0, 2 * 3600.0, 1800.0),
        (60.0, 5.0, 90 * 3600.0, (2 * 60 * 86400) ** 0.5),
        (600.0, 5.0, 90 * 3600.0, 7200.0),
        (0.001, 300.0, 1800.0, 900.0),
    ],
)
def test_the_interval_follows_young_and_daly_within_bounds(
    stall_s: float, write_s: float, job_s: float, expected_s: float
) -> None:
    assert best_interval_s(stall_s, write_s, job_s) == pytest.approx(expected_s)


def fill_the_disk(folder: Path) -> None:
    """Saves, saves with no room for it, and saves again."""
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    run = Run(folder)
    for step, limits in ((1, unlimited), (2, (65536, resource.RLIM_INFINITY)), (3, unlimited)):
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        run.checkpoints.save(of_step(step, size=100_000))
        run.checkpoints.wait()
    run.checkpoints.close()
    run.events.close()


def save_forever(folder: Path) -> None:
    """Saves as fast as it can; says so on stdout once there is a first verified one."""
    steps = stored_steps(folder / "checkpoints") or [0]
    run = Run(folder, Retention(2, 0, None, "val_loss"), started_from=steps[-1])
    step = steps[-1]
    while True:
        step += 1
        run.checkpoints.save(of_step(step, size=200_000))
        if step == steps[-1] + 2:
            print("saving", flush=True)


if __name__ == "__main__":
    actions: dict[str, Any] = {"full-disk": fill_the_disk, "save-forever": save_forever}
    actions[sys.argv[1]](Path(sys.argv[2]))


class ReadByOthers(EventLog):
    """Events that others read while the trainer continues."""

    def __init__(self, path: Path, folder: Path) -> None:
        super().__init__(path)
        self.folder = folder
        self.standing: dict[int, bool] = {}

    def emit(self, kind: str, **fields: Any) -> None:
        super().emit(kind, **fields)
        if fields.get("action") == "pruned":
            step = fields["step"]
            self.standing[step] = (self.folder / checkpoint_name(step)).exists()


def test_no_checkpoint_is_gone_while_it_is_listed(tmp_path: Path) -> None:
    """A trainer that is killed while it prunes leaves none that the index has and the disk not."""
    folder = tmp_path / "checkpoints"
    events = ReadByOthers(tmp_path / "events.jsonl", folder)
    retention = Retention(1, 0, None, "val_loss")
    store = CheckpointStore(folder, Origin(1, "0" * 64, 0), retention, events)
    checkpoints = Checkpoints(store, events)
    for step in (1, 2, 3):
        checkpoints.save(of_step(step))
        checkpoints.wait()
    assert events.standing == {1: True, 2: True}
    assert stored_steps(folder) == [3]
