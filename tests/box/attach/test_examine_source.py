from __future__ import annotations

import pytest

from trainer_runtime.box.attach.examine_source import examine_source


@pytest.mark.parametrize(
    "log", ["/" + "b" * 300, "a" * 300, "~nobody-of-this-name/x.log", "x/" * 3000]
)
def test_a_path_that_no_file_system_can_hold_is_refused_as_no_log(log: str) -> None:
    refused = examine_source("log", log, "start", None)["refused"]
    assert refused["code"] == "LOG_NOT_READABLE"
