"""The end that a log's last lines state, of a training whose process is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host.foreign_trainings import OUT_OF_MEMORY, lines

from trainer_runtime.host.attach.attached_processes import end_in_log

_CLEAN = "its process ended; the log ends without an error"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (lines(0, 9), _CLEAN),
        ("0 errors, 3 warnings\n" + lines(0, 9), _CLEAN),
        (OUT_OF_MEMORY + lines(0, 90), _CLEAN),
        (lines(0, 9) + OUT_OF_MEMORY, "breaks off in an error"),
        (lines(0, 9) + "KeyboardInterrupt\n", "breaks off in an error"),
        (lines(0, 9) + "Killed\n", "breaks off in an error"),
        (lines(0, 9) + "iter 9: lo", "breaks off in the middle of a line"),
        ("", "its log is empty"),
    ],
)
def test_an_end_is_reported_as_far_as_the_log_states_it(
    tmp_path: Path, text: str, expected: str
) -> None:
    log = tmp_path / "train.log"
    log.write_text(text)
    assert expected in end_in_log(log)


def test_the_prompt_of_a_pane_is_no_line_that_broke_off(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(lines(0, 9) + "me@gpu1:~$ ")
    assert end_in_log(log, in_lines=False) == _CLEAN
