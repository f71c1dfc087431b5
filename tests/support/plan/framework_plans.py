"""Plans for one framework and method, and what they decided."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan import (
    CorpusFacts,
    HostFacts,
    ModelFacts,
    Plan,
    plan,
)
from trainmaster.plan.spec import load_spec

SMALL = {"n_layer": 2, "n_head": 2, "d_model": 64}
# A model of a billion parameters, as its config describes it.
BILLION = ModelFacts(
    path="/weights",
    model_type="llama",
    parameters=1_100_048_384,
    n_layer=22,
    n_head=32,
    n_kv_head=4,
    d_model=2048,
    d_ff=5632,
    vocab_size=32000,
    tied=False,
    max_positions=2048,
    has_tokenizer=True,
)


def planned(
    framework: str,
    host: HostFacts,
    corpus: CorpusFacts,
    *sets: str,
    model: ModelFacts | None = None,
    length: str = "steps: 20",
) -> Plan:
    sizes = {"path": "/weights"} if model is not None else SMALL
    file_format = "jsonl" if framework == "trl" else "text"
    spec = load_spec(
        f"name: small\nframework: {framework}\nmodel: {sizes}\n{length}\n"
        f"data: {{sources: [{{name: main, path: /corpus, format: {file_format}}}]}}\n",
        sets,
    )
    return plan(spec, host, corpus, None, model)


def decided(made: Plan, field: str) -> tuple[Any, str, str | None]:
    (found,) = [item for item in made.decisions if item.field == field]
    return found.value, found.reason, found.source


def refusal(*arguments: Any, **named: Any) -> TrainmasterError:
    with pytest.raises(TrainmasterError) as caught:
        planned(*arguments, **named)
    return caught.value
