from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.home.paths import Home
from trainmaster.store.masking import Mask, mask_of
from trainmaster.store.secret_values import keep

pytestmark = pytest.mark.attack

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
# Few letters, so that values meet, overlap and lie in each other all the time.
VALUES = st.lists(st.text('ab"', min_size=4, max_size=9), max_size=4)
CHUNKS = st.lists(st.text('ab"%2\\\n', max_size=12).map(str.encode), max_size=12)


def followed(mask: Mask, stream: bytes, ends: Sequence[int]) -> bytes:
    """What a follower writes that sees the stream grow to each of `ends`, and then its last end."""
    written = b""
    for end in sorted(ends):
        written += mask.apply(stream[len(written) : end], final=False)
    return written + mask.apply(stream[len(written) :], final=True)


@given(values=VALUES, chunks=CHUNKS, cuts=st.lists(st.integers(0, 200), max_size=8))
def test_any_cutting_of_the_stream_is_masked_like_the_whole(
    values: list[str], chunks: list[bytes], cuts: list[int]
) -> None:
    text = values[:1] + values[-1:]
    stream = b"".join([*chunks, *(value.encode() + chunk for value in text for chunk in chunks)])
    mask = Mask(values)
    whole = mask.apply(stream, final=True)
    assert followed(mask, stream, cuts) == whole
    assert followed(mask, stream, range(len(stream))) == whole
    assert len(whole) == len(stream)
    assert [value for value in values if value.encode() in whole] == []


@given(values=VALUES, chunks=CHUNKS)
def test_exactly_the_bytes_of_values_are_masked(values: list[str], chunks: list[bytes]) -> None:
    stream = b"".join(chunks)[:40]  # too short for more overlaps than are followed
    covered = set()
    forms = {form for value in values for form in (value, json.dumps(value)[1:-1], quote(value))}
    for form in map(str.encode, forms):
        for start in range(len(stream)):
            if stream.startswith(form, start):
                covered |= set(range(start, start + len(form)))
    expected = bytes(ord("*") if at in covered else byte for at, byte in enumerate(stream))
    assert Mask(values).apply(stream, final=True) == expected


def test_what_could_begin_a_value_is_held_back_and_nothing_else() -> None:
    mask = Mask([TOKEN])
    assert mask.apply(b"loss 1.5\n", final=False) == b"loss 1.5\n"
    assert mask.apply(b"the token is hf_AbC", final=False) == b"the token is "
    assert mask.apply(b"the token is hf_AbC", final=True) == b"the token is hf_AbC"
    assert mask.apply(f"{TOKEN}h".encode(), final=False) == b"*" * len(TOKEN)


def test_a_value_is_known_in_json_and_in_a_url() -> None:
    value = 'pa"ss/wörd&x'
    text = f"plain {value}\n{json.dumps({'k': value})}\nhttps://u:{quote(value, safe='')}@host/\n"
    text += json.dumps({"k": value}, ensure_ascii=False)
    masked = Mask([value]).apply(text.encode(), final=True)
    assert len(masked) == len(text.encode())
    assert b"ss" not in masked and b"rd" not in masked
    assert masked.startswith(b'plain *************\n{"k": "*')
    assert b"@host/" in masked


def test_values_in_each_other_and_over_each_other_leave_nothing() -> None:
    mask = Mask(["secret-abc", "abc-tail", "cret"])
    assert mask.apply(b"<secret-abc-tail> <cret> abc", final=True) == (
        b"<***************> <****> abc"
    )


def test_a_value_over_several_lines_is_known_on_a_terminal_too() -> None:
    masked = Mask(["first line\nsecond line"]).apply(b"x first line\r\nsecond line y", final=True)
    assert masked == b"x " + b"*" * 23 + b" y"


@pytest.mark.parametrize("values", [[], [""], ["abc"], ["", "xy"]])
def test_what_is_too_short_masks_nothing(values: list[str]) -> None:
    assert Mask(values).apply(b"abc xy \n", final=False) == b"abc xy \n"


def test_a_value_without_end_is_neither_held_back_for_ever_nor_slow() -> None:
    mask = Mask(["-" * 200, "-" * 7])
    data = b"-" * 2_000_000
    started = time.thread_time()  # others may keep it from its core
    written = mask.apply(data, final=False)
    assert time.thread_time() - started < 5.0
    assert len(data) - len(written) < 5000
    assert set(written) == {ord("*")}


def test_a_text_is_masked_as_a_whole() -> None:
    assert Mask([TOKEN]).text(f"ä {TOKEN} …") == f"ä {'*' * len(TOKEN)} …"


def test_the_mask_of_a_run_is_made_of_what_it_was_given(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert mask_of(home, "run-abcdef").apply(TOKEN.encode(), final=True) == TOKEN.encode()
    keep(home, "run-abcdef", {"HF_TOKEN": TOKEN})
    keep(home, "run-abcdef", {"HF_TOKEN": "a newer one"})
    text = f"{TOKEN} a newer one".encode()
    assert mask_of(home, "run-abcdef").apply(text, final=True) == b"*" * 39 + b" " + b"*" * 11
    home.secrets("run-abcdef").write_text("{")
    with pytest.raises(ValueError, match="Expecting"):
        mask_of(home, "run-abcdef")
