from __future__ import annotations

from collections.abc import Callable

import pytest

from trainmaster.plan import CorpusFacts, HostFacts, plan
from trainmaster.plan.spec import TrainingSpec

_LARGE = ("model.n_layer=12", "model.n_head=12", "model.d_model=768")


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        ([*_LARGE], ["data.seq_len 128", "batch.tokens 8,192"]),
        ([*_LARGE, "data.seq_len=128"], ["batch.tokens 8,192"]),
        ([*_LARGE, "data.seq_len=256", "batch.tokens=8192"], []),
        ([], []),
    ],
)
def test_defaults_of_a_first_training_are_named_where_a_large_model_has_them(
    make_spec: Callable[..., TrainingSpec],
    cpu_host: HostFacts,
    text_corpus: CorpusFacts,
    sets: list[str],
    named: list[str],
) -> None:
    host = cpu_host.model_copy(update={"memory_available_gib": 60.0, "memory_total_gib": 64.0})
    warnings = plan(make_spec(*sets), host, text_corpus).warnings
    found = [one for one in warnings if one.startswith("Defaults for a first training")]
    assert [
        name for name in ("data.seq_len 128", "batch.tokens 8,192") if name in str(found)
    ] == named
