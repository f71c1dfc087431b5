"""The lease of an instance: trainers are signalled in time, then the timer ends the instance."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.core.journal_records import kept, metric, started
from support.host.scripted_processes import Box, Life

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.lease.lease import LEASE, Lease, OwnEnd, stop_t, time_to_stop_s
from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.lines import decode, encode
from trainer_runtime.core.protocol.progress import Progress
from trainer_runtime.core.protocol.states import PlacementState
from trainer_runtime.host.lease.start_timer import LOG
from trainer_runtime.host.lease.timer import (
    Answered,
    LeaseTimer,
    described,
    host_variables,
    missing,
    terminate_host,
)

HTTP = OwnEnd(
    method="DELETE",
    url="https://user:pass@cloud.example/v0/box/7?token=hidden",
    key_variable="BOX_KEY",
)
RUNNING = Life((started(), metric(1), *kept(20), metric(40)), end=None)


def lease(end_t: float, **fields: Any) -> Lease:
    return Lease("tm-0a1b2c-abc234", "vast", "7", end_t, **fields)


def lay_down(root: Path, given: Lease) -> None:
    (root / LEASE).write_text(json.dumps(given.to_dict()))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    box = Box(tmp_path / "runs" / "small-abc234", {1: RUNNING, 2: RUNNING, 3: RUNNING})
    box.set_up()
    return box


def test_a_trainer_is_signalled_five_minutes_before_the_end_or_earlier_if_it_saves_slowly() -> None:
    quick, slow = Progress(1), Progress(1)
    for fields in ({"action": "saved", "size_bytes": 10**9, "stall_s": 1.0, "write_s": 99.0},):
        saved = {"step": 20, "path": "checkpoints/step-00000020", **fields}
        slow.apply(decode(encode(0, 0.0, "checkpoint", saved)))
    assert time_to_stop_s(120, None, [quick]) == 120
    assert time_to_stop_s(120, None, [quick, slow]) == 120 + 200
    assert time_to_stop_s(120, "host:/disk", [slow]) == 120 + 200 + 10
    assert time_to_stop_s(120, "operator", [slow]) == 120 + 200 + 200
    assert stop_t(lease(10_000), 120) == 10_000 - 300
    assert stop_t(lease(10_000), 520) == 10_000 - 520
    assert stop_t(lease(10_000), 10**6) == 10_000 - 1800
    assert stop_t(lease(10_000, stop_before_s=2.0), 520) == 10_000 - 2


def test_a_run_is_saved_and_stopped_before_its_lease_ends(box: Box, tmp_path: Path) -> None:
    lay_down(tmp_path, lease(box.now + 400))
    began = box.now
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.STOPPED, "lease_over")
    assert record.attempts[0].detail == "saved and ended"
    assert 100 <= (record.attempts[0].terminated_t or 0) - began <= 102
    assert ("terminate", 1) in box.requests


def test_nothing_starts_under_a_lease_that_is_over_until_one_lasts(
    box: Box, tmp_path: Path
) -> None:
    lay_down(tmp_path, lease(box.now + 200))
    record = box.to_the_end()
    assert (record.state, record.reason, box.started) == (
        PlacementState.STOPPED, "lease_over", []
    )  # fmt: skip
    box.ask("running", 2)
    record = box.to_the_end()
    assert (record.reason, record.generation, box.started) == ("lease_over", 2, [])
    lay_down(tmp_path, lease(box.now + 10_000))
    assert box.to_the_end().generation == 2  # a newer lease alone starts nothing
    box.ask("running", 3)
    box.tick(box.supervisor(), "attempt_running")
    assert box.started == [1]


def test_a_crash_is_not_tried_again_where_no_time_is_left_for_it(box: Box, tmp_path: Path) -> None:
    crash = Life((started(), metric(1), metric(2)), Exit(1, None))
    box.lives = dict.fromkeys(range(1, 9), crash)
    lay_down(tmp_path, lease(box.now + 304))
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.STOPPED, "lease_over")


def test_a_lease_that_ends_earlier_by_now_counts(box: Box, tmp_path: Path) -> None:
    lay_down(tmp_path, lease(box.now + 10**6))
    supervisor = box.supervisor()
    box.tick(supervisor, "running")
    lay_down(tmp_path, lease(box.now + 60))
    assert box.to_the_end(supervisor).reason == "lease_over"


def test_a_supervisor_that_is_started_late_stops_what_it_finds(box: Box, tmp_path: Path) -> None:
    box.tick(box.supervisor(), "attempt_running")  # and is killed
    lay_down(tmp_path, lease(box.now + 60))
    box.now += 3600
    record = box.to_the_end()
    assert (record.state, record.reason) == (PlacementState.STOPPED, "lease_over")
    assert len(record.attempts) == 1


@dataclass
class World:
    """An instance for the timer: its clock, and how its provider answers each time."""

    root: Path
    answers: Sequence[Answered] = ()
    now: float = 1_000_000.0
    asked: list[float] = field(default_factory=list)
    seen_to: list[str] = field(default_factory=list)

    def timer(self) -> LeaseTimer:
        return LeaseTimer(self.root, lambda: self.now, self.ask, self)

    def ask(self, _lease: Lease) -> Answered:
        self.asked.append(self.now)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]

    def wake(self) -> list[str]:
        self.seen_to.append("wake")
        return []

    def stop(self) -> list[str]:
        self.seen_to.append("stop")
        raise OSError("a disk is gone")  # the end comes all the same

    def pass_time(self, timer: LeaseTimer, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            nap_s = timer.tick()
            assert nap_s is not None and 0 < nap_s <= 5.0
            self.now += nap_s

    @property
    def log(self) -> str:
        return (self.root / LOG).read_text()


REFUSED, TAKEN = Answered(False, "the provider answered 500"), Answered(True, "answered 204")


def test_a_box_is_ended_when_its_lease_is_over_and_again_until_it_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path, [REFUSED, REFUSED, TAKEN])
    end_t = world.now + 1000
    lay_down(tmp_path, lease(end_t, own_end=HTTP))
    world.pass_time(world.timer(), 1200)
    after = [t - end_t for t in world.asked]
    assert after[0] == 0
    assert after[:3] == pytest.approx([0, 2, 6], abs=2)
    assert all(b - a >= 60 for a, b in pairwise(after[2:]))
    assert world.seen_to.count("stop") == len(world.asked)
    assert "hidden" not in world.log and "pass" not in world.log
    assert "https://cloud.example/v0/box/7" in world.log and "answered 500" in world.log


def test_pauses_between_tries_grow_and_are_bounded(tmp_path: Path) -> None:
    world = World(tmp_path, [REFUSED])
    lay_down(tmp_path, lease(world.now, own_end=HTTP))
    world.pass_time(world.timer(), 3600)
    pauses = [b - a for a, b in pairwise(world.asked)]
    assert pauses == sorted(pauses) and pauses[0] <= 3 and 295 <= pauses[-1] <= 305


def test_a_newer_lease_counts_whether_it_ends_earlier_or_later(tmp_path: Path) -> None:
    world = World(tmp_path, [REFUSED])
    timer = world.timer()
    lay_down(tmp_path, lease(world.now + 10**6, own_end=HTTP))
    world.pass_time(timer, 60)
    lay_down(tmp_path, lease(world.now + 10, own_end=HTTP))
    world.pass_time(timer, 60)
    tries = len(world.asked)
    assert tries > 1
    lay_down(tmp_path, lease(world.now + 500, own_end=HTTP))
    world.pass_time(timer, 400)
    assert len(world.asked) == tries
    (tmp_path / LEASE).unlink()  # nobody gets rid of it so
    world.pass_time(timer, 200)
    assert len(world.asked) > tries


def test_a_box_that_slept_over_the_end_is_ended_at_once(tmp_path: Path) -> None:
    world = World(tmp_path, [TAKEN])
    timer = world.timer()
    lay_down(tmp_path, lease(world.now + 3600, own_end=HTTP))
    world.pass_time(timer, 10)
    world.now += 86_400
    timer.tick()
    assert len(world.asked) == 1
    world.now -= 7200  # its clock is set back, but not before the end
    timer.tick()
    assert len(world.asked) == 2


def test_supervisors_are_revived_towards_the_end_only(tmp_path: Path) -> None:
    world = World(tmp_path, [TAKEN])
    timer = world.timer()
    lay_down(tmp_path, lease(world.now + 3600, stop_before_s=60.0))
    world.pass_time(timer, 3500)
    assert world.seen_to == []
    world.pass_time(timer, 90)
    assert 2 <= world.seen_to.count("wake") <= 4


def test_a_box_without_a_key_of_its_own_says_so_and_lets_nothing_train(tmp_path: Path) -> None:
    world = World(tmp_path)
    lay_down(tmp_path, lease(world.now + 5))
    world.pass_time(world.timer(), 200)
    assert world.asked == [] and world.seen_to.count("stop") >= 2
    assert "can't end itself" in world.log


def test_a_box_without_a_lease_has_no_timer(tmp_path: Path) -> None:
    assert World(tmp_path).timer().tick() is None
    (tmp_path / LEASE).write_text('{"tag": "no lease"}')
    assert World(tmp_path).timer().tick() is None


def test_keys_are_found_where_images_leave_them(tmp_path: Path) -> None:
    first, written = tmp_path / "environ", tmp_path / "environment"
    first.write_bytes(b"BOX_KEY=of-the-first\0PATH=/opt/bin\0odd\0")
    written.write_text('# made\nexport OTHER_KEY="quoted one"\nBOX_KEY=of-the-file\nno name=x\n')
    found = host_variables({"PATH": "/bin"}, first, [written, tmp_path / "none"])
    assert (found["BOX_KEY"], found["OTHER_KEY"]) == ("of-the-first", "quoted one")
    assert found["PATH"] == "/bin:/opt/bin" and "no name" not in found
    assert host_variables({"BOX_KEY": "own"}, first, [written])["BOX_KEY"] == "own"


def test_what_an_instance_lacks_to_end_itself_is_reported() -> None:
    assert missing(HTTP, {}) == "it has no key called BOX_KEY"
    assert missing(HTTP, {"BOX_KEY": "k"}) is None
    assert described(HTTP) == "DELETE https://cloud.example/v0/box/7"
    assert terminate_host(HTTP, {}) == Answered(False, "it has no key called BOX_KEY")


def test_a_lease_of_an_earlier_version_is_read() -> None:
    program = {"kind": "command", "command": ["runpodctl", "pod", "delete", "7"]}
    request = {"method": "DELETE", "url": "https://e.invalid/7", "key_variable": "K"}
    written = {"own_end": {"kind": "http", **request, "otherwise": program}}
    before = {**lease(5.0).to_dict(), **written}
    assert Lease.of(decode_fields(json.dumps(before).encode(), LEASE)).own_end == OwnEnd(**request)
