"""The fast parser beside the standard library's."""

from __future__ import annotations

import json
import struct

import pydantic_core
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainer_runtime.core.decoding import DecodingError, decode_value
from trainmaster.store.fast_json import dump_json_fast, parse_json_fast

numbers = st.one_of(
    st.integers(),
    st.floats(),
    st.integers(0, 2**64 - 1).map(lambda bits: struct.unpack("<d", struct.pack("<Q", bits))[0]),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(), st.text("\ud800\udfff\x00\t\x7f")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# Replaces a piece of the text by something odd, or not at all.
damages = st.tuples(
    st.integers(0, 80),
    st.integers(0, 4),
    st.one_of(
        st.binary(max_size=4),
        st.sampled_from(
            [
                b"1e400",
                b"-0",
                b"1.",
                b"01",
                b"NaN",
                b"-Infinity",
                b",]",
                b"\\ud834",
                b"\xed\xa0\x80",
            ]
        ),
    ),
)


@pytest.fixture(autouse=True)
def imported() -> None:
    assert pydantic_core.from_json(b"1") == 1  # before enough texts have come


def outcome(data: bytes | str, *, fast: bool) -> str:
    try:
        value = decode_value(data, "", parse=parse_json_fast) if fast else decode_value(data, "")
    except DecodingError as error:
        return f"{type(error).__name__}: {error}"
    return repr(value)


@given(values, st.booleans(), damages)
@example("", False, (0, 2, b"\xef\xbb\xbf1"))
@example("", False, (0, 2, b"[" * 300 + b"]" * 300))
@example("", False, (0, 2, b"1" * 5000))
@example("", False, (0, 2, b'{"a": 1, "a": 2}'))
@example("", False, (0, 2, b'{"a": 123456789012345678901234567890.5e-300}'))
def test_every_text_has_the_same_value_or_error(
    value: object, ascii_only: bool, damage: tuple[int, int, bytes]
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    begin, length, odd = damage
    for data in (text, text[:begin] + odd + text[begin + length :]):
        assert outcome(data, fast=True) == outcome(data, fast=False)


@pytest.mark.parametrize("text", ["", " ", "\ud800", '"\ud800"', "[1, 2]", "\ufeff1", "nul"])
def test_strings_are_parsed_as_bytes_are(text: str) -> None:
    assert outcome(text, fast=True) == outcome(text, fast=False)


@given(values)
def test_what_is_written_reads_as_what_the_standard_library_writes(value: object) -> None:
    assert repr(json.loads(dump_json_fast(value))) == repr(json.loads(json.dumps(value)))
