from __future__ import annotations

import pytest

from trainer_runtime.core.files.listing import LeftOut, ListedFile, parse_listed
from trainer_runtime.core.files.names import TakenNames, safe_names, why_unsafe

pytestmark = pytest.mark.attack


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/etc/passwd", "a/../b", "a//b", "a/", "../out", "a\\b", "C:\\a"),
        *("a\0b", "a\nb", "a\x1b[31mb", "a\x85b", "a\u202eb", "a\u200bb", "a\ud800b", "\ufeffa"),
        *("nul", "NUL.txt", "a/con", "com1.log/a", "Aux.tar.gz"),
        *("a" * 241, "ä" * 121, "/".join("a" * 33), "/".join(["a" * 200] * 11)),
    ],
)
def test_a_name_that_could_lead_elsewhere_or_be_misread_is_refused(name: str) -> None:
    assert why_unsafe(name) is not None
    assert safe_names([name, "train.log"], 10) == ["train.log"]


@pytest.mark.parametrize(
    "name",
    ["train.log", "checkpoints/step-00000010/rank-0.safetensors", "a b", "Größe", "nullable"],
)
def test_ordinary_names_are_accepted(name: str) -> None:
    assert why_unsafe(name) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Model.bin", "model.bin"),
        ("caf\u00e9", "cafe\u0301"),
        ("\ufb01le", "file"),
        ("a/b", "A/c"),
        ("a", "a/b"),
        ("a/b", "a"),
    ],
)
def test_of_names_that_some_disks_confuse_the_first_is_kept(first: str, second: str) -> None:
    assert safe_names([first, second], 10) == [first]
    taken = TakenNames()
    assert taken.why_taken(first) is None
    assert taken.why_taken(second) is not None


def test_a_listing_is_read_up_to_a_bound() -> None:
    assert safe_names((str(number) for number in range(100)), 3) == ["0", "1", "2"]


@pytest.mark.parametrize("field", ["size", "mtime_ns"])
@pytest.mark.parametrize(
    "value", [-(1 << 63), 1 << 63, 10**400, 1e308, float("nan"), float("inf"), True, "7", None, []]
)
def test_a_size_or_time_that_no_file_has_leaves_the_file_out(field: str, value: object) -> None:
    row = {"path": "a", "size": 1, "mtime_ns": 1, "sha256": None}
    assert isinstance(parse_listed(row), ListedFile)
    assert isinstance(parse_listed({**row, field: value}), LeftOut)


@pytest.mark.parametrize("row", [None, 3, [], "text", {}, {"path": "a"}, {"skipped": 1}])
def test_a_row_of_another_shape_is_left_out(row: object) -> None:
    assert isinstance(parse_listed(row), LeftOut)
