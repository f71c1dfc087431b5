"""What is sent of a run's folder, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer_runtime.core.protocol.followed_files import JOURNAL, WHOLE_EVERY_S
from trainer_runtime.host.answer.followed_run import FollowedRun


class Sent:
    """What a run's files were sent as, by name."""

    def __init__(self) -> None:
        self.sent_bytes = 0
        self.files: dict[str, bytes] = {}

    def frame(self, header: dict[str, Any], data: bytes = b"") -> None:
        self.sent_bytes += len(data)
        self.files[header["file"]] = data


def test_files_that_are_always_rewritten_are_sent_seldom_and_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    (tmp_path / JOURNAL).write_bytes(b"{}\n")
    state, ended = tmp_path / "state.json", tmp_path / "attempts/1/exit.json"
    run = FollowedRun("a", str(tmp_path), {})

    def sent(now: float, *, thoroughly: bool = False) -> dict[str, bytes]:
        found = Sent()
        if run.refresh(now, thoroughly=thoroughly):
            run.send(found, 1 << 20, now)
        return {name: data for name, data in found.files.items() if name.endswith(".json")}

    state.write_bytes(b"first")
    assert sent(1000.0) == {"state.json": b"first"}
    state.write_bytes(b"a second one")
    assert sent(1000.0 + 0.4 * WHOLE_EVERY_S) == {}
    ended.write_bytes(b"code")
    assert sent(1000.0 + 0.7 * WHOLE_EVERY_S) == {"attempts/1/exit.json": b"code"}
    assert sent(1000.0 + 1.3 * WHOLE_EVERY_S) == {"state.json": b"a second one"}
    state.write_bytes(b"the last")
    assert sent(1001.0 + 1.3 * WHOLE_EVERY_S, thoroughly=True) == {"state.json": b"the last"}
