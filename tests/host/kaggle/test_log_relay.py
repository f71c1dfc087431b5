"""What a kernel's log carries: every byte once, masked, the journal last."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.core.journal_records import attempt_ended, attempt_starting, lines, metric, started
from support.host.kaggle_kernels import Copy

from trainer_runtime.core.kaggle.log_frames import decode_frame
from trainer_runtime.core.protocol.masking import Mask
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.kaggle.kaggle_session import Relay

SECRET = "abab-0123-abab"
EVENTS = "attempts/1/events.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.attempt(1).root.mkdir(parents=True)
    run.config.write_text(json.dumps({"run_id": "small-abc234"}))
    return run


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize("piece", [1, 3, 7, 50])
def test_a_secret_is_masked_however_its_bytes_come(run: RunFolder, piece: int) -> None:
    emitted: list[str] = []
    relay = Relay(run, 0, Mask([SECRET]), emitted.append)
    text = f"ab {SECRET} {SECRET[:6]}{SECRET} ends with {SECRET[:7]}".encode()
    for start in range(0, len(text), piece):
        append(run.attempt(1).train_log, text[start : start + piece])
        relay.poll()
    relay.finish()
    copied = Copy().take("\n".join(emitted)).files["attempts/1/train.log"]
    assert copied == Mask([SECRET]).apply(text, final=True)
    assert len(copied) == len(text)


def test_only_new_data_is_emitted(run: RunFolder) -> None:
    earlier = b"".join(lines([started(), metric(1)]))
    append(run.attempt(1).events, earlier)
    append(run.journal, b"".join(lines([attempt_starting(1)])))
    known = 10  # the journal of a lost session may be known further, or less far
    emitted: list[str] = []
    relay = Relay(run, known, Mask([]), emitted.append)
    relay.poll()
    append(run.attempt(1).events, b"more\n")
    relay.poll()
    relay.finish()
    frames = [frame for line in emitted if (frame := decode_frame(line))]
    assert [(frame.file, frame.at) for frame in frames] == [
        ("supervisor.jsonl", known),
        (EVENTS, len(earlier)),
    ]


def test_no_news_of_an_end_precedes_what_it_ended(run: RunFolder) -> None:
    emitted: list[str] = []
    relay = Relay(run, 0, Mask([]), emitted.append)
    append(run.attempt(1).events, b"x" * 200_000)  # several lines of the log
    append(run.journal, b"".join(lines([attempt_starting(1), attempt_ended(1, "killed")])))
    relay.poll()
    frames = [frame for line in emitted if (frame := decode_frame(line))]
    assert [frame.file for frame in frames] == [EVENTS] * 5 + ["supervisor.jsonl"]
    assert max(map(len, emitted)) < 70_000
