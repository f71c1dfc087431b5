"""A log of which nothing is understood is reported once, for an attached training as well."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer_runtime.host.attach.log_events import LogEvents
from trainer_runtime.host.attach.unread_log import UnreadLog
from trainer_runtime.host.files.layout import AttemptFolder

_OWN = "".join(f"upd {at} of 900 -> ce 2.5 took 0.1\n" for at in range(150))
_READ = "".join(f"step {at} loss 2.5\n" for at in range(150))


@pytest.mark.parametrize(("text", "said"), [(_OWN, 1), (_READ, 0), (_OWN[:200], 0)])
def test_a_log_without_metrics_is_reported_once(tmp_path: Path, text: str, said: int) -> None:
    attempt = AttemptFolder(tmp_path)
    attempt.train_log.write_text(text)
    events = LogEvents(attempt, lambda: 1.0)
    unread = UnreadLog(events, None)
    while events.advance(live=False):
        pass
    for _ in range(2):
        unread.poll(has_metrics=events.has_metrics, ended=False)
    events.sync()
    lines = map(json.loads, attempt.events.read_text().splitlines())
    decided = [line for line in lines if line.get("what") == "log_not_understood"]
    assert len(decided) == said
    assert all(line["samples"] for line in decided)
