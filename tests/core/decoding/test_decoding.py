from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from trainer_runtime.core.decoding import (
    MAX_DEPTH,
    MAX_DOCUMENT_BYTES,
    MAX_RECORD_BYTES,
    DecodingError,
    Fields,
    decode_fields,
    decode_value,
)
from trainer_runtime.core.decoding.limits import MAX_VALUES


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


def test_a_value_is_read_up_to_the_greatest_depth() -> None:
    decode_value(nested(MAX_DEPTH), "x")
    with pytest.raises(DecodingError, match=r"^x is nested deeper than 16 levels$"):
        decode_value(nested(MAX_DEPTH + 1), "x")


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert decode_value(json.dumps([[1]] * 100), "x") == [[1]] * 100


def test_what_is_far_too_deep_for_python_is_an_error_like_any() -> None:
    with pytest.raises(DecodingError):
        decode_value(nested(200_000), "x")


def test_a_record_has_a_greatest_size() -> None:
    long = json.dumps("x" * MAX_RECORD_BYTES)
    with pytest.raises(DecodingError, match="is longer than 1048576 bytes"):
        decode_value(long, "x")
    assert decode_value(long, "x", max_bytes=2 * MAX_RECORD_BYTES)


@pytest.mark.parametrize("data", [b"", b"{", b"nonsense", b"\xff\xfe{}", b'{"a":1}x'])
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(DecodingError, match="is not JSON"):
        decode_value(data, "state.json")


def test_an_object_is_asked_for_by_the_name_of_its_file() -> None:
    with pytest.raises(DecodingError, match=r"^state\.json is not a JSON object$"):
        decode_fields(b"[]", "state.json")


def test_python_s_constants_are_read_as_the_names_that_we_write() -> None:
    read = decode_fields(b'{"a": NaN, "b": -Infinity, "c": "Infinity"}', "x")
    assert math.isnan(read.number("a"))
    assert (read.number("b"), read.number("c")) == (-math.inf, math.inf)
    assert read.values["a"] == "NaN"


FIELDS = Fields(
    {
        "text": "a",
        "flag": True,
        "count": 3,
        "whole": 3.0,
        "huge": 2**63,
        "endless": 10**400,
        "overflow": 1e999,
        "late": 1e12,
        "null": None,
        "texts": ["a"],
        "section": {"inner": {"leaf": 1}},
        "list": [{"leaf": "x"}, 2],
    },
    "config.json",
)


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (lambda: FIELDS.text("count"), "config.json: count is not a string"),
        (lambda: FIELDS.text("absent"), "config.json: absent is missing"),
        (lambda: FIELDS.text("null"), "config.json: null is missing"),
        (lambda: FIELDS.flag("count"), "config.json: count is neither true nor false"),
        (lambda: FIELDS.integer("flag"), "config.json: flag is not an integer"),
        (lambda: FIELDS.integer("huge"), "config.json: huge is beyond 64 bits"),
        (lambda: FIELDS.number("flag"), "config.json: flag is not a number"),
        (lambda: FIELDS.number("endless"), "config.json: endless is beyond the range of a float"),
        (lambda: FIELDS.number("overflow"), "config.json: overflow is beyond the range of a float"),
        (lambda: FIELDS.time("late"), "config.json: late is not a time between 1970 and 9999"),
        (lambda: FIELDS.section("texts"), "config.json: texts is not an object"),
        (lambda: FIELDS.texts("text"), "config.json: text is not a list"),
        (lambda: FIELDS.integers("texts"), "config.json: texts is not a list of integers"),
        (lambda: FIELDS.sections("list"), "config.json: list[1] is not an object"),
        (
            lambda: FIELDS.section("section").section("inner").text("leaf"),
            "config.json: section.inner.leaf is not a string",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_place(
    ask: Callable[[], object], problem: str
) -> None:
    with pytest.raises(DecodingError) as error:
        ask()
    assert str(error.value) == problem


def test_absent_fields_take_their_defaults() -> None:
    assert FIELDS.integer("absent", 7) == FIELDS.integer("null", 7) == 7
    assert FIELDS.find_text("absent") is None
    assert FIELDS.section("absent").find_flag("leaf") is None
    assert FIELDS.sections("absent") == FIELDS.texts("absent") == ()


def test_a_whole_float_is_an_integer() -> None:
    assert (FIELDS.integer("whole"), FIELDS.integer("count")) == (3, 3)


def test_a_document_of_more_values_than_fit_is_refused_before_it_is_read() -> None:
    text = b"[" + b"[]," * (MAX_VALUES // 2) + b"[]]"
    with pytest.raises(DecodingError, match=f"more than {MAX_VALUES:,} values"):
        decode_value(text, "a list", max_bytes=MAX_DOCUMENT_BYTES)
