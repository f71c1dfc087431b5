from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trainer_runtime.host.attach.examine_source import examine_source


@pytest.mark.parametrize(
    "log", ["/" + "b" * 300, "a" * 300, "~nobody-of-this-name/x.log", "x/" * 3000]
)
def test_a_path_that_no_file_system_can_hold_is_refused_as_no_log(log: str) -> None:
    refused = examine_source("log", log, "start", None)["refused"]
    assert refused["code"] == "LOG_NOT_READABLE"


@pytest.mark.parametrize(
    ("data", "carrier"),
    [
        (b'{"log":"step 1 loss 2.0\\n","stream":"stdout","time":"2026-01-02"}\n', "Docker's JSON"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        ("step 1 loss 2.0\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_a_wrapped_log_is_named_with_what_can_be_followed(
    tmp_path: Path, data: bytes, carrier: str
) -> None:
    log = tmp_path / "train.log"
    log.write_bytes(data)
    refused = examine_source("log", str(log), "start", None)["refused"]
    assert refused["code"] == "LOG_NOT_READABLE" and carrier in refused["message"]
    assert "trainmaster diagnose FILE" in refused["fix"]


def test_a_process_whose_log_was_deleted_is_to_be_copied(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    with log.open("w") as output:
        process = subprocess.Popen(["sleep", "60"], stdout=output)
    try:
        log.unlink()
        refused = examine_source("pid", str(process.pid), "start")["refused"]
    finally:
        process.kill()
        process.wait()
    assert refused["code"] == "LOG_NOT_READABLE" and "was deleted" in refused["message"]
    assert f"tail -c +1 -f /proc/{process.pid}/fd/1" in refused["fix"]
