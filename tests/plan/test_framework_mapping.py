"""The arguments that the mapping names are those that the frameworks are really given."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from trainer_runtime.core.config import RunConfig
from trainer_runtime.core.frameworks import launching
from trainmaster.plan import CorpusFacts, HostFacts, ModelFacts, plan
from trainmaster.plan.frameworks import FRAMEWORKS
from trainmaster.plan.spec import all_fields, load_spec
from trainmaster.settings.yaml12 import load_yaml

Corpora = Callable[..., CorpusFacts]

_SIZES = "{n_layer: 2, n_head: 2, d_model: 64}"
_OF_TRAINER = re.compile(r"TrainingArguments\.(\w+)")
# Dotted, or with an underscore: LitGPT's own names; its commands and other things of ours aside.
_OF_LITGPT = re.compile(r"[a-z_]+(?:\.[a-z_]+)+|[a-z]+_[a-z_]+")
_NO_ARGUMENTS = {"framework", "method", "adapter", "adapter.kind", "compute.threads", "labels"}


@pytest.fixture
def given(cpu_host: HostFacts, one_source: Corpora) -> Callable[..., dict[str, Any]]:
    """What a framework's own file holds for a spec."""

    def make(name: str, framework: str, more: str, model: ModelFacts | None = None) -> Any:
        text = (
            f"name: small\nframework: {framework}\nsteps: 20\n{more}\n"
            f"model: {_SIZES if model is None else '{path: /weights}'}\n"
            "data: {sources: [{name: main, path: /corpus, "
            f"format: {'text' if model is None else 'jsonl'}}}]}}\n"
        )
        config = plan(load_spec(text), cpu_host, one_source(), None, model).config
        files = launching.files(RunConfig.parse({"run_id": "small-abc234", **config}))
        return load_yaml(files[name])

    return make


def dotted(value: Any, before: str = "") -> set[str]:
    if not isinstance(value, dict):
        return set()
    names = {f"{before}{key}" for key in value}
    return names.union(*(dotted(value[key], f"{before}{key}.") for key in value))


@pytest.mark.parametrize(("framework", "more"), [("hf", ""), ("trl", "method: sft")])
def test_trainers_are_given_what_the_mapping_names(
    given: Callable[..., dict[str, Any]], framework: Any, more: str
) -> None:
    arguments = given("training_args.yaml", framework, more)
    named = {
        name
        for field in all_fields()
        for name in _OF_TRAINER.findall(FRAMEWORKS[framework].place_of(field).where)
    }
    assert len(named) > 15
    assert named <= arguments.keys()


def test_litgpt_is_given_what_the_mapping_names(given: Callable[..., dict[str, Any]]) -> None:
    tuned = ModelFacts(path="/weights", model_type="llama", parameters=10**6)
    arguments = dotted(given("litgpt.yaml", "litgpt", ""))
    arguments |= dotted(given("litgpt.yaml", "litgpt", "method: sft\nadapter: {r: 8}", tuned))
    named = {
        part
        for field in all_fields()
        if field.path not in _NO_ARGUMENTS
        for part in re.split(r"[,;] ?", FRAMEWORKS["litgpt"].place_of(field).where)
        if _OF_LITGPT.fullmatch(part)
    }
    assert len(named) > 20
    assert named <= arguments
