"""The host's own alerts, posted to a real receiver on loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.alerts.webhook_receiver import Receiver, receiving
from support.core.journal_records import kept, metric, started
from support.host.scripted_processes import Box, Life
from support.runs.running_run import holding, wait_until

from trainer_runtime.core.policy.endings import Exit
from trainer_runtime.core.protocol.lines import encode
from trainer_runtime.host.alerts.post import post
from trainer_runtime.host.supervise.supervisor import Supervisor

LOSSES = (started(), *(metric(step, 4.0) for step in (1, 2, 3)))
ABOVE = {"id": "aaaaaaaa", "name": "high", "severity": "warning", "when": "loss > 3.5 for 3"}
FAILED = {"id": "bbbbbbbb", "name": "failed", "severity": "critical", "when": "state failed"}


@pytest.fixture
def box(tmp_path: Path) -> Box:
    box = Box(tmp_path / "runs" / "small-abc234", {1: Life(LOSSES, end=None)})
    box.set_up()
    return box


@pytest.fixture
def down() -> Iterator[Receiver]:
    """A receiver that refuses connections; its port is held, but nobody listens at it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield Receiver(port=held.getsockname()[1])


def give(box: Box, receiver: Receiver, *alerts: dict[str, Any], kind: str = "webhook") -> None:
    given = {
        "v": 1,
        "generation": 1,
        "host": "gpu-1",
        "placement": 1,
        "alerts": [{"to": "ops", "since_t": 0.0, **alert} for alert in alerts],
        "destinations": {"ops": {"kind": kind, "url": receiver.url}},
    }
    temporary = box.run.alerts.with_name(".new")
    temporary.write_text(json.dumps(given))
    temporary.chmod(0o600)
    os.replace(temporary, box.run.alerts)


def senders() -> list[int]:
    """The living children of this process that post a message."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if words[1:4] == [b"-m", b"trainer_runtime", b"alert"] and int(parent) == os.getpid():
            found.append(int(folder.name))
    return found


def phases(box: Box) -> list[str]:
    return [event["phase"] for event in box.journal() if event["kind"] == "alert"]


def pass_time(box: Box) -> None:
    """The host's clock runs faster than the wall's, so that pauses are short; but a sender, which
    would be ended after half a minute, has the time that it takes."""
    if not senders():
        box.now += 0.2


def tick_until(box: Box, supervisor: Supervisor, phase: str, count: int = 1) -> None:
    def recorded() -> bool:
        supervisor.tick()
        pass_time(box)
        return phases(box).count(phase) >= count

    wait_until(recorded, f"{count} alert events of phase {phase}")


def test_a_met_condition_alerts_once_though_the_file_is_replaced(box: Box) -> None:
    with receiving() as receiver:
        give(box, receiver, ABOVE)
        supervisor = box.supervisor()
        tick_until(box, supervisor, "sent")
        give(box, receiver, ABOVE, FAILED)
        for _ in range(30):
            supervisor.tick()
            box.now += 1.0
    assert phases(box) == ["fired", "sent"]
    [body] = receiver.taken
    assert (body["run"], body["alert"], body["severity"]) == ("small-abc234", "high", "warning")
    assert (body["state"], body["step"], body["host"]) == ("running", 3, "gpu-1")
    assert "loss is 4, > 3.5 for 3 points." in body["text"]


def test_an_alert_added_to_a_live_run_is_watched_from_then_on(box: Box) -> None:
    with receiving() as receiver:
        supervisor = box.supervisor()
        box.tick(supervisor, "running")
        give(box, receiver, {**ABOVE, "since_t": box.now + 100})
        for _ in range(20):
            supervisor.tick()
        assert phases(box) == []
        box.now += 200
        with box.run.attempt(1).events.open("ab") as file:
            for seq, step in enumerate((4, 5, 6), 4):
                values = {"step": step, "values": {"loss": 9.0}}
                file.write(encode(seq, box.now, "metric", values))
        tick_until(box, supervisor, "sent")
    assert [body["step"] for body in receiver.taken] == [6]


def test_a_supervisor_that_is_killed_before_it_noted_the_answer_sends_the_same_again(
    box: Box,
) -> None:
    with receiving() as receiver:
        give(box, receiver, ABOVE)
        killed = box.supervisor()
        for _ in range(200):
            killed.tick()
            box.now += 0.2
            if "fired" in phases(box):
                break
        wait_until(lambda: receiver.taken, "the message")
        assert phases(box) == ["fired"]  # taken, but nobody has written that down
        tick_until(box, box.supervisor(), "sent")
    assert phases(box) == ["fired", "sent"]
    assert len(receiver.taken) == 2
    assert len({body["id"] for body in receiver.taken}) == 1


@pytest.mark.slow
def test_a_receiver_that_refuses_is_tried_again_later_and_later(box: Box) -> None:
    with receiving(lambda number: 500 if number < 3 else 200) as receiver:
        give(box, receiver, ABOVE)
        tick_until(box, box.supervisor(), "sent")
    assert phases(box) == ["fired", "failed", "failed", "failed", "sent"]
    failures = [event for event in box.journal() if event.get("phase") == "failed"]
    assert {event["reason"] for event in failures} == {"the receiver answered 500"}
    pauses = [event["due_t"] - event["t"] for event in failures]
    assert pauses == pytest.approx([2.0, 4.0, 8.0])
    assert len({body["id"] for body in receiver.asked}) == 1


@pytest.mark.slow
def test_a_receiver_that_is_down_gets_it_when_it_is_up_again(box: Box, down: Receiver) -> None:
    give(box, down, ABOVE)
    supervisor = box.supervisor()
    tick_until(box, supervisor, "failed", 2)
    reasons = {event["reason"] for event in box.journal() if event.get("phase") == "failed"}
    assert reasons == {"the connection was refused"}
    with receiving(port=down.port) as again:
        tick_until(box, supervisor, "sent")
    assert [body["alert"] for body in again.taken] == ["high"]


def test_a_receiver_that_hangs_holds_up_no_tick(box: Box) -> None:
    with receiving(lambda _: None) as receiver:
        give(box, receiver, ABOVE)
        supervisor = box.supervisor()
        for _ in range(200):
            supervisor.tick()
            box.now += 0.2
            if "fired" in phases(box):
                break
        wait_until(lambda: receiver.asked, "the request")
        for _ in range(40):  # one that waited would see the sender give up, after ten seconds
            supervisor.tick()
        assert phases(box) == ["fired"]
        receiver.released.set()
        tick_until(box, supervisor, "failed")
    assert phases(box)[:2] == ["fired", "failed"]


def test_a_failed_run_sends_its_alert_before_its_supervisor_ends(box: Box) -> None:
    box.lives = {1: Life((started(),), Exit(1, None))}
    with receiving() as receiver:
        give(box, receiver, FAILED)
        supervisor = box.supervisor()

        def ended() -> bool:
            pass_time(box)
            return supervisor.tick()

        wait_until(ended, "the end")
    assert phases(box) == ["fired", "sent"]
    assert box.record().closed
    assert "(failed_before_first_step)" in receiver.taken[0]["text"]
    assert not box.run.alerts.exists()  # the address goes with the last message


@pytest.mark.slow
def test_after_the_end_a_dead_receiver_is_given_up_within_bounds(box: Box, down: Receiver) -> None:
    box.lives = {1: Life((started(),), Exit(1, None))}
    give(box, down, FAILED)
    supervisor = box.supervisor()

    def ended() -> bool:
        box.now += 5.0
        return supervisor.tick()

    wait_until(ended, "the end")
    last = [event for event in box.journal() if event["kind"] == "alert"][-1]
    assert (last["phase"], last["due_t"]) == ("failed", None)


def test_the_address_stands_in_its_file_alone(box: Box) -> None:
    with receiving() as receiver:
        give(box, receiver, ABOVE)
        tick_until(box, box.supervisor(), "sent")
    assert box.run.alerts.stat().st_mode & 0o077 == 0
    assert [Path(name).name for name in holding(box.root, b"very-secret-path")] == [".alerts.json"]


@pytest.mark.parametrize("written", ["", "[]", '{"alerts": [{"when": "loss >"}, 7]}'])
def test_an_unreadable_file_holds_up_nothing(box: Box, written: str) -> None:
    box.lives = {1: Life((started(), metric(100), *kept(100), ("completed", {"step": 100})))}
    box.run.alerts.write_text(written)
    assert box.to_the_end().closed


def test_a_redirect_is_not_followed() -> None:
    with receiving(lambda _: 302) as receiver:
        answer = post(receiver.url, {"a": 1}, "id")
    assert (answer["sent"], answer["reason"]) == (False, "the receiver answered 302")
    assert len(receiver.asked) == 1


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///etc/passwd", "the address is not of http or https"),
        ("http://127.0.0.1:1/x", "the connection was refused"),
        ("http://no-such-host.invalid/x", "its name is not known"),
        ("http://[bad/x", "the address can't be used"),
    ],
)
def test_what_can_not_be_reached_has_a_reason_that_names_no_address(url: str, reason: str) -> None:
    asked = json.dumps({"url": url, "body": {}, "id": "x"})
    done = subprocess.run(
        [sys.executable, "-m", "trainer_runtime", "alert"],
        input=asked.encode(),
        capture_output=True,
        timeout=60,
    )
    assert json.loads(done.stdout) == {"sent": False, "reason": reason, "wait_s": 0.0}


def test_a_sender_that_is_killed_is_a_failed_try(box: Box) -> None:
    with receiving(lambda number: None if number == 0 else 200) as receiver:
        give(box, receiver, ABOVE)
        supervisor = box.supervisor()

        def asked() -> bool:
            supervisor.tick()
            pass_time(box)
            return bool(receiver.asked)

        wait_until(asked, "the request")
        [sender] = senders()
        os.kill(sender, signal.SIGKILL)
        tick_until(box, supervisor, "sent")
    assert phases(box) == ["fired", "failed", "sent"]
