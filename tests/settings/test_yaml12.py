from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.errors.errors import SpecError
from trainmaster.settings.yaml12 import MAX_BYTES, dump_yaml, load_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e9", 2e9),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("-12", -12),
        ("+3", 3),
        ("010", 10),
        ("0o17", 15),
        ("0x1F", 31),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("null", None),
        ("", None),
        ("24:00:00", "24:00:00"),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("2024-01-31", "2024-01-31"),
        ("<<", "<<"),
        ("=", "="),
        ("'2e9'", "2e9"),
        ("16g", "16g"),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ('"a\\/b"', "a/b"),
    ],
)
def test_scalars_are_those_of_the_core_schema(text: str, value: Any) -> None:
    loaded = load_yaml(f"key: {text}")["key"]
    assert loaded == value
    assert type(loaded) is type(value)


def test_nan_is_a_number() -> None:
    assert math.isnan(load_yaml("key: .nan")["key"])


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        ("a: 1\nb: 2\na: 3", "DUPLICATE_KEY", "`a` occurs twice"),
        ("a: {b: 1, b: 2}", "DUPLICATE_KEY", "line 1, column 11"),
        ("a: &x 1", "SPEC_NOT_READABLE", "anchors"),
        ("a: &x 1\nb: *x", "SPEC_NOT_READABLE", "line 1, column 4"),
        ("a: *nowhere", "SPEC_NOT_READABLE", "aliases"),
        ("a: !!python/object:os.system ls", "SPEC_NOT_READABLE", "tags"),
        ("a: ! 1", "SPEC_NOT_READABLE", "tags"),
        ('a: "\\ud83d"', "SPEC_NOT_READABLE", "surrogate"),
        ("a: [1, 2", "SPEC_NOT_READABLE", "line 1"),
        ("a: 1\n\tb: 2", "SPEC_NOT_READABLE", "line 2"),
        ("--- {a: 1}\n--- {b: 2}", "SPEC_NOT_READABLE", "single document"),
        ("8: x", "SPEC_NOT_READABLE", "quote it: '8'"),
        ("true: x", "SPEC_NOT_READABLE", "not a string"),
        ("{[a]: x}", "SPEC_NOT_READABLE", "not a string"),
        ("a\x00b: 1", "SPEC_NOT_READABLE", "special characters"),
        ("[" * 5000, "SPEC_NOT_READABLE", "deeper than 40"),
        ("a: " + "9" * 5000, "SPEC_NOT_READABLE", "too many digits"),
        ("a: " + "x" * MAX_BYTES, "SPEC_TOO_LARGE", "1,000,000"),
        ("a: " + "é" * (MAX_BYTES // 2), "SPEC_TOO_LARGE", "1,000,000"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_with_its_place(
    text: str, code: str, detail: str
) -> None:
    with pytest.raises(SpecError) as caught:
        load_yaml(text)
    assert caught.value.code == code
    assert detail in caught.value.message


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=30)
    | st.sampled_from(["2e9", "yes", "24:00:00", "0o17", "1_000", "~", "", "<<", "2024-01-31"])
)
_KEYS = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=20)
_DOCUMENTS = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(_DOCUMENTS)
def test_what_is_dumped_is_loaded_alike_under_both_versions(document: Any) -> None:
    text = dump_yaml({"document": document})
    assert load_yaml(text) == {"document": document}
    assert yaml.safe_load(text) == {"document": document}


@given(st.text(max_size=200))
def test_any_text_is_either_loaded_or_refused_as_a_spec_error(text: str) -> None:
    with suppress(SpecError):
        load_yaml(text)
