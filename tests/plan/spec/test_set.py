"""`--set`: values laid over a spec."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plan.whole_spec import WHOLE_SPEC

from trainmaster.errors.errors import SpecError
from trainmaster.plan.spec import (
    load_spec,
)
from trainmaster.settings.yaml12 import dump_yaml


def test_set_addresses_items_of_lists_by_name_and_by_number(small_spec: str) -> None:
    sources = "data.sources=[{name: a, path: x}, {name: a.b, path: y}]"
    spec = load_spec(small_spec, [sources, "data.sources.a.b.weight=3", "data.sources[0].weight=2"])
    assert [source.weight for source in spec.data.sources] == [2, 3]


def test_a_field_of_a_section_that_is_a_list_is_refused(small_spec: str) -> None:
    with pytest.raises(SpecError, match="which is a list in this spec") as refused:
        load_spec(small_spec, ["model=[]", "model.n_layer=2"])
    assert (refused.value.code, refused.value.field) == ("INVALID_VALUE", "model.n_layer")


def test_set_reads_values_as_yaml_and_makes_missing_sections(small_spec: str) -> None:
    spec = load_spec(
        small_spec,
        ["optimizer.lr=3e-4", "steps=2e3", "labels.run.kind=a=b", "checkpoint.every=30s"],
    )
    assert spec.optimizer.lr == 0.0003
    assert spec.steps == 2000
    assert spec.labels == {"run.kind": "a=b"}
    assert spec.checkpoint.every == "30s"


_SETTABLE = {
    "seed": st.integers(0, 2**32 - 1),
    "steps": st.integers(100, 10**9),
    "optimizer.weight_decay": st.floats(0, 1e6),
    "model.dropout": st.floats(0, 0.99),
    "schedule.kind": st.sampled_from(["cosine", "linear", "constant", "inverse_sqrt", "wsd"]),
    "checkpoint.every": st.integers(1, 10**6) | st.sampled_from(["auto", "90s", "10m", "1d"]),
    "data.sources.main.weight": st.floats(1e-6, 1e6),
    "pty": st.booleans(),
}


@pytest.mark.slow
@given(
    st.sampled_from(sorted(_SETTABLE)).flatmap(
        lambda path: st.tuples(st.just(path), _SETTABLE[path])
    )
)
def test_any_value_in_range_is_set_and_nothing_else_changes(chosen: tuple[str, Any]) -> None:
    path, value = chosen
    text = dump_yaml(value).removesuffix("...\n").strip()
    spec = load_spec(WHOLE_SPEC, [f"{path}={text}"])
    changed = spec.model_dump()
    expected = load_spec(WHOLE_SPEC).model_dump()
    holder: Any = expected
    *outer, last = path.replace("sources.main", "sources.0").split(".")
    for part in outer:
        holder = holder[int(part)] if part == "0" else holder[part]
    holder[last] = value
    assert changed == expected


@given(st.text(max_size=60))
def test_any_set_argument_is_applied_or_refused_as_a_spec_error(argument: str) -> None:
    with suppress(SpecError):
        load_spec(WHOLE_SPEC, [argument])
