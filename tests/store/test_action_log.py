"""The action log: what is recorded, what never is, and that it survives many writers."""

from __future__ import annotations

import json
import os
import random
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.attack.endless_files import ENDLESS

from trainmaster.calls.work import Work, working
from trainmaster.errors.errors import HostError
from trainmaster.home.paths import Home
from trainmaster.store.action_log import (
    KEPT_FILES,
    ROTATE_AT_BYTES,
    LoggedAction,
    append,
    discard_action,
    logged_action,
    read_actions,
    record_answer,
    targets_of,
)


@pytest.fixture
def root(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def action(number: int, run_id: str = "demo-abc234") -> LoggedAction:
    return LoggedAction(
        "2026-01-01T00:00:00Z", "cli", "me", f"stop-{number}", "ok", 0.1, {"run_id": run_id}
    )


def test_a_call_is_recorded_with_its_outcome_and_the_run_that_it_made(root: Home) -> None:
    with logged_action(root, "mcp", "agent 1.0", "launch", {"spec": "runs/spec.yaml"}):
        record_answer({"run_id": "demo-abc234", "host": "local", "state": "preparing"})
    with (
        pytest.raises(HostError),
        logged_action(root, "cli", "me", "stop", {"run": "demo-abc234"}),
    ):
        raise HostError("HOST_UNREACHABLE", "gpu1 gives no answer.", "Check the link.")
    launched, stopped = read_actions(root, 10)
    assert (launched.face, launched.client, launched.outcome) == ("mcp", "agent 1.0", "ok")
    assert launched.target == {
        "spec": "runs/spec.yaml",
        "run_id": "demo-abc234",
        "host": "local",
        "state": "preparing",
    }
    assert (stopped.action, stopped.outcome) == ("stop", "HOST_UNREACHABLE")


def test_an_error_that_a_face_wrapped_keeps_its_code(root: Home) -> None:
    cause = HostError("LINK_LOST", "The link broke.", "Try again.")
    with pytest.raises(RuntimeError), logged_action(root, "mcp", "", "stop", {}):
        raise RuntimeError("Error executing tool stop") from cause
    assert [line.outcome for line in read_actions(root, 10)] == ["LINK_LOST"]


def test_a_call_that_acted_on_nothing_gets_no_line(root: Home) -> None:
    with logged_action(root, "keeper", "me", "tick", {"every": "5m"}):
        discard_action()
    assert read_actions(root, 10) == []


def test_values_texts_and_addresses_stay_out(root: Home) -> None:
    secret = "hf_0123456789abcdef"
    arguments = {
        "run": "demo-abc234",
        "sets": [f"env.TOKEN={secret}"],
        "set": [f"env.TOKEN={secret}"],
        "spec": f"name: demo\nenv: {{TOKEN: {secret}}}\n",
        "address": f"me:{secret}@gpu1",
        "name": "gpu1\x1b[2J",
    }
    with logged_action(root, "cli", "me", "resume", arguments):
        pass
    text = root.action_log.read_text()
    assert secret not in text
    assert json.loads(text)["target"] == {"run_id": "demo-abc234"}


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=300)))
def test_only_names_are_kept_of_arguments(arguments: dict[str, str]) -> None:
    for text in targets_of({**arguments, "host": arguments.get("x", "gpu1")}).values():
        assert len(text) <= 200
        assert text.isprintable()


def test_the_file_is_its_owners_alone_and_is_rotated(root: Home) -> None:
    append(root, action(0))
    assert stat.S_IMODE(root.action_log.stat().st_mode) == 0o600
    for number in range(KEPT_FILES + 2):
        with root.action_log.open("ab") as file:
            file.write(b" " * ROTATE_AT_BYTES + b"\n")
        append(root, action(number + 1))
    files = sorted(path.name for path in root.action_log.parent.glob("*.jsonl"))
    assert len(files) == KEPT_FILES
    assert [line.action for line in read_actions(root, 3)] == ["stop-5", "stop-6", "stop-7"]
    assert all(
        stat.S_IMODE(path.stat().st_mode) == 0o600 for path in root.action_log.parent.iterdir()
    )


def test_lines_of_many_writers_stay_whole(root: Home) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: append(root, action(number)), range(200)))
    assert {line.action for line in read_actions(root, 1000)} == {
        f"stop-{number}" for number in range(200)
    }


@pytest.mark.parametrize("line", [b'{"time":', b"[]", b'{"time":1}', b"[" * 5000, b"\xff\xfe"])
def test_a_damaged_line_hides_no_other(root: Home, line: bytes) -> None:
    append(root, action(1))
    with root.action_log.open("ab") as file:
        file.write(line + b"\n")
    append(root, action(2, "other-abc234"))
    assert [each.action for each in read_actions(root, 10)] == ["stop-1", "stop-2"]
    assert [each.action for each in read_actions(root, 10, "other-abc234")] == ["stop-2"]


@pytest.mark.attack
@pytest.mark.parametrize("shape", sorted(ENDLESS))
def test_reading_is_bounded_whatever_lies_in_place_of_the_log(root: Home, shape: str) -> None:
    append(root, action(1))
    root.action_log.rename(root.action_log.with_suffix(".1.jsonl"))
    ENDLESS[shape](root.action_log, random.Random(shape))
    with working(Work(within_s=30, most_bytes=3 * ROTATE_AT_BYTES)):
        assert [each.action for each in read_actions(root, 10)] == ["stop-1"]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 50_000), max_size=20), st.integers(1, 10))
def test_the_newest_lines_are_read_across_blocks(lengths: list[int], limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        for number, length in enumerate(lengths):
            append(home, replace(action(number), client="x" * length))
        written = [f"stop-{number}" for number in range(len(lengths))]
        assert [each.action for each in read_actions(home, limit)] == written[-limit:]


def test_a_home_that_cannot_be_written_stops_no_action(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with logged_action(Home(tmp_path / "file" / "home"), "cli", "me", "stop", {}):
        reached = os.getpid()
    assert reached
