from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from trainmaster.errors.error_codes import CODES
from trainmaster.errors.errors import Problem, SpecError, TrainmasterError, unusable_path


def test_an_error_reports_code_message_fix_and_whether_to_retry() -> None:
    error = TrainmasterError("DISK_FULL", "The disk is full.", "Free some.", True, "host")
    assert error.to_dict() == {
        "code": "DISK_FULL",
        "message": "The disk is full.",
        "fix": "Free some.",
        "retryable": True,
        "field": "host",
    }


def test_an_error_as_text_holds_everything_a_client_may_drop() -> None:
    error = TrainmasterError("DISK_FULL", "The disk is full.", "Free some.")
    assert str(error) == "DISK_FULL: The disk is full. Fix: Free some. retryable=no"


def test_an_error_without_field_leaves_it_out() -> None:
    assert "field" not in TrainmasterError("INTERNAL", "m", "f").to_dict()


def test_a_code_that_is_not_registered_is_refused() -> None:
    with pytest.raises(ValueError, match="NO_SUCH_CODE"):
        TrainmasterError("NO_SUCH_CODE", "m", "f")


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_is_upper_snake_and_has_a_one_line_meaning(code: str) -> None:
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code)
    assert CODES[code].meaning.endswith(".")
    assert "\n" not in CODES[code].meaning


@pytest.mark.parametrize(
    ("code", "unanswered", "unreachable", "outcome_unknown"),
    [
        ("HOST_UNREACHABLE", True, True, True),
        ("LINK_LOST", True, True, True),
        ("KAGGLE_UNREACHABLE", True, True, True),
        ("AUTH_FAILED", False, True, False),
        ("KAGGLE_KEY_REFUSED", False, True, False),
        ("INVALID_RESPONSE", False, False, True),
        ("RATE_LIMITED", False, False, False),
        ("DISK_FULL", False, False, False),
    ],
)
def test_how_far_a_request_got_follows_from_the_code(
    code: str, unanswered: bool, unreachable: bool, outcome_unknown: bool
) -> None:
    error = TrainmasterError(code, "m", "f")
    assert error.unanswered is unanswered
    assert error.unreachable is unreachable
    assert error.outcome_unknown is outcome_unknown


def test_several_problems_are_all_reported_under_the_first_ones_code() -> None:
    first = Problem("WRONG_TYPE", "steps", "`steps` is the text 'x'.", "Give a number.")
    second = Problem("UNKNOWN_KEY", "stps", "`stps` is not a key.", "Remove it.")
    error = SpecError.listing([first, second])
    assert (error.code, error.field) == ("WRONG_TYPE", "steps")
    assert first.message in error.message
    assert second.message in error.message
    assert second.fix in error.fix
    assert [item["code"] for item in error.to_dict()["problems"]] == ["WRONG_TYPE", "UNKNOWN_KEY"]


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("n" * 300, errno.ENAMETOOLONG),
        ("loop", errno.ELOOP),
        ("file/inside", errno.ENOTDIR),
        ("folder", errno.EISDIR),
        ("socket", errno.ENXIO),
    ],
)
def test_a_path_that_the_kernel_refuses_is_named_with_what_to_give_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, number: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    Path("folder").mkdir()
    os.mknod("socket", 0o140600)
    with pytest.raises(OSError, match=re.escape(path)) as raised:
        Path(path).read_bytes()
    assert raised.value.errno == number
    error = unusable_path(raised.value)
    assert error is not None and error.code == "BAD_ARGUMENT"
    assert path in error.message and "255 bytes" in error.fix


def test_a_path_in_a_folder_that_is_closed_is_named(tmp_path: Path) -> None:
    error = unusable_path(PermissionError(errno.EACCES, "Permission denied", str(tmp_path)))
    assert error is not None and str(tmp_path) in error.message
    assert unusable_path(OSError(errno.EIO, "Input/output error")) is None
