from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer_runtime.core.protocol.lines import (
    ProtocolError,
    complete_lines,
    decode,
    encode,
    finite_or_named,
    named,
    number,
)

values = st.dictionaries(st.text(max_size=8), st.floats(), max_size=4)


@given(values)
def test_every_float_comes_back_bit_for_bit(values: dict[str, float]) -> None:
    line = encode(3, 12.5, "metric", {"step": 1, "values": values})
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    back = {key: number(raw) for key, raw in decode(line).values.items()}
    assert set(back) == set(values)
    for key, value in values.items():
        same = back[key] == value or (math.isnan(value) and math.isnan(back[key] or 0.0))
        assert same


def test_what_is_not_finite_stands_as_its_name_at_any_depth() -> None:
    fields = {
        "values": {"loss": math.nan},
        "list": [math.inf, {"x": -math.inf}],
        "text": "NaN-like",
    }
    event = json.loads(encode(0, 1.0, "metric", fields))
    assert event["values"] == {"loss": "NaN"}
    assert event["list"] == ["Infinity", {"x": "-Infinity"}]
    assert event["text"] == "NaN-like"
    assert finite_or_named((1, 2.5, math.nan)) == [1, 2.5, "NaN"]
    assert [named(value) for value in (math.inf, -math.inf, math.nan)] == [
        "Infinity",
        "-Infinity",
        "NaN",
    ]


def test_a_name_that_is_not_valid_text_is_still_encoded() -> None:
    torn_name = b"corpus/caf\xe9.txt".decode(errors="surrogateescape")
    event = decode(encode(0, 1.0, "warning", {"message": torn_name}))
    assert event.document["message"] == torn_name


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"not json",
        b'{"v":1,"seq":0,"t":1.0,"kind":"met',
        b'["v",1]',
        b"17",
        b'{"seq":0,"t":1.0,"kind":"metric"}',
        b'{"v":2,"seq":0,"t":1.0,"kind":"metric"}',
        b'{"v":0,"seq":0,"t":1.0,"kind":"metric"}',
        b'{"v":"1","seq":0,"t":1.0,"kind":"metric"}',
        b'{"v":1,"t":1.0,"kind":"metric"}',
        b'{"v":1,"seq":0,"kind":"metric"}',
        b'{"v":1,"seq":0,"t":1.0}',
        b'{"v":1,"seq":0,"t":1.0,"kind":7}',
        b'{"v":1,"seq":0,"t":NaN,"kind":"metric","step":1}',
        b'{"v":1,"seq":-1,"t":1.0,"kind":"started"}',
        b'{"v":1,"seq":0,"t":1.0,"kind":"metric"}',
        b'{"v":1,"seq":0,"t":1.0,"kind":"eval","step":null}',
        b'{"v":1,"seq":0,"t":1.0,"kind":"metric","step":1e30}',
        b'{"v":1,"seq":0,"t":1.0,"kind":"metric","step":1,"values":[2.5]}',
        b'\xff\xfe{"v":1}',
        b"[" * 100_000,
    ],
)
def test_a_line_that_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(line)


def test_unknown_kinds_and_fields_are_kept_for_who_knows_them() -> None:
    event = decode(b'{"v":1,"seq":4,"t":2,"kind":"gossip","about":{"loss":1}}')
    assert (event.kind, event.document["about"]) == ("gossip", {"loss": 1})


@pytest.mark.parametrize(
    ("raw", "value"),
    [(1, 1.0), (2.5, 2.5), ("Infinity", math.inf), ("-Infinity", -math.inf)],
)
def test_numbers_stand_for_themselves_or_by_name(raw: object, value: float) -> None:
    assert number(raw) == value


@pytest.mark.parametrize("raw", [True, None, "1.5", "nan", [1], {"a": 1}])
def test_anything_else_is_no_number(raw: object) -> None:
    assert number(raw) is None


@given(st.lists(st.binary(max_size=12).filter(lambda part: b"\n" not in part)), st.data())
def test_lines_are_whole_however_the_bytes_arrive(parts: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(part + b"\n" for part in parts)
    found: list[bytes] = []
    rest = b""
    while whole:
        size = data.draw(st.integers(1, len(whole)))
        rest, whole = rest + whole[:size], whole[size:]
        got, used = complete_lines(rest)
        found += got
        rest = rest[used:]
    assert rest == b""
    assert found == [part for part in parts if part.strip()]
