from __future__ import annotations

import json

import pytest

from trainer_runtime.core.decoding import DecodingError, decode_json


def test_json_within_the_limits_is_decoded() -> None:
    value = {"a": [1, {"b": [None, True, "x"]}]}
    assert decode_json(json.dumps(value), largest=1000) == value
    assert decode_json(json.dumps(value).encode(), largest=1000) == value


@pytest.mark.parametrize("depth", [0, 1, 31, 32, 33])
def test_nesting_is_limited(depth: int) -> None:
    text = "[" * depth + "1" + "]" * depth
    if depth <= 32:
        assert decode_json(text, largest=1000) is not None
        return
    with pytest.raises(DecodingError, match="more than 32 levels"):
        decode_json(text, largest=1000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[" * 100_000 + "]" * 100_000, "not JSON|levels deep"),
        ("9" * 5000, "not JSON"),
        ('"' + "x" * 300_000 + '"', "at most 250000"),
    ],
)
def test_what_is_no_json_or_too_large_is_refused(text: str, reason: str) -> None:
    with pytest.raises(DecodingError, match=reason):
        decode_json(text, largest=250_000)
