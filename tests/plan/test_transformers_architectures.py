"""What planning knows of transformers' architectures, against the installed transformers."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from support.plan.architectures import SMALL

from trainmaster.errors.errors import TrainmasterError
from trainmaster.plan import CorpusFacts, HostFacts, Plan, plan
from trainmaster.plan.architecture_counts import COUNTED, counted
from trainmaster.plan.spec import load_spec
from trainmaster.plan.transformers_architectures import (
    DATA,
    OBJECTIVE_DATA,
    fields_by_architecture,
    whole_config,
)

_SCRIPT = Path(__file__).resolve().parents[2] / "scripts/make_architectures.py"
# Further forms of architectures whose configuration has switches.
_FORMS: list[tuple[str, dict[str, Any]]] = [
    ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    ("falcon", {"multi_query": False, "parallel_attn": False, "alibi": True}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("phi", {"qk_layernorm": True}),
    ("starcoder2", {"use_bias": False}),
]


def test_the_architectures_are_those_of_the_installed_transformers() -> None:
    described = importlib.util.spec_from_file_location("make_architectures", _SCRIPT)
    assert described is not None and described.loader is not None
    script = importlib.util.module_from_spec(described)
    described.loader.exec_module(script)
    assert DATA.read_text() == script.text(script.architectures())
    assert OBJECTIVE_DATA.read_text() == script.text(script.objective_architectures())


def test_the_page_names_every_architecture_and_those_that_are_counted() -> None:
    page = (_SCRIPT.parents[1] / "docs/models.md").read_text()
    assert not [name for name in fields_by_architecture() if f"`{name}`" not in page]
    assert SMALL.keys() <= COUNTED.keys()
    counted_there = page.partition("time are planned for ")[2].partition("Of the others")[0]
    assert set(re.findall(r"`([^`]+)`", counted_there)) == set(COUNTED)


@pytest.mark.parametrize(
    ("arch", "config"),
    [*SMALL.items(), *((arch, {**SMALL[arch], **form}) for arch, form in _FORMS)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_parameters_are_counted_as_transformers_counts_them(
    arch: str, config: dict[str, Any]
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    whole = whole_config(arch, {**config, "vocab_size": 320})
    given = {name: whole[name] for name in (*config, "vocab_size")}
    if "num_key_value_heads" in whole:
        given["num_key_value_heads"] = whole["num_key_value_heads"]
    described = AutoConfig.for_model(arch, **given, pad_token_id=None)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(described)
    made = counted(arch, whole, 64)
    assert made is not None
    assert made[2] == model.num_parameters()


def made_plan(host: HostFacts, corpus: CorpusFacts, model: str, *sets: str) -> Plan:
    spec = load_spec(
        f"name: small\nframework: hf\nmodel: {model}\nsteps: 20\n"
        "data: {sources: [{name: main, path: /corpus}]}\n",
        sets,
    )
    return plan(spec, host, corpus)


def test_a_configuration_is_completed_by_the_run(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    made = made_plan(cpu_host, text_corpus, f"{{arch: qwen3, config: {SMALL['qwen3']}}}")
    model = made.config["model"]
    assert model["arch"] == "qwen3"
    assert model["config"] == {
        **SMALL["qwen3"], "vocab_size": 320, "max_position_embeddings": 128
    }  # fmt: skip
    assert made.estimates.parameters is not None and made.estimates.memory_gib is not None
    assert made.config["derived"]["flops_per_token"]


def test_an_architecture_without_a_formula_is_planned_with_a_warning(
    cpu_host: HostFacts, text_corpus: CorpusFacts
) -> None:
    config = (
        "{hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 4, intermediate_size: 64}"
    )
    made = made_plan(cpu_host, text_corpus, f"{{arch: granite, config: {config}}}")
    assert made.estimates.parameters is None
    assert [text for text in made.warnings if "granite" in text]


@pytest.mark.parametrize(
    ("arch", "changes", "field", "words"),
    [
        ("qwen4", {}, "model.arch", "Did you mean qwen3?"),
        ("bert", {}, "model.arch", "Set objective to masked"),
        ("qwen3", {"hiden_size": 3}, "model.config.hiden_size", "`hidden_size`"),
        ("qwen3", {"hidden_size": "32"}, "model.config.hidden_size", "a whole number"),
        ("qwen3", {"num_hidden_layers": None}, "model.config.num_hidden_layers", "null"),
        ("qwen3", {"eos_token_id": 3}, "model.config.eos_token_id", "Remove"),
        (
            "qwen3",
            {"num_key_value_heads": 3},
            "model.config.num_key_value_heads",
            "does not divide",
        ),
        (
            "llama",
            {"num_attention_heads": 5},
            "model.config.num_attention_heads",
            "does not divide",
        ),
        ("gemma2", {"layer_types": ["full_attention"]}, "model.config.layer_types", "lists 1"),
        ("mixtral", {"num_experts_per_tok": 5}, "model.config.num_experts_per_tok", "4 experts"),
        ("qwen3", {"vocab_size": 100}, "model.config.vocab_size", "257 tokens"),
        (
            "qwen3",
            {"max_position_embeddings": 64},
            "model.config.max_position_embeddings",
            "seq_len",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(
    cpu_host: HostFacts,
    text_corpus: CorpusFacts,
    arch: str,
    changes: dict[str, Any],
    field: str,
    words: str,
) -> None:
    config = {**SMALL.get(arch, SMALL["llama"]), **changes}
    with pytest.raises(TrainmasterError) as refused:
        made_plan(
            cpu_host,
            text_corpus,
            f"{{arch: {arch}}}",
            f"model.config={config}".replace("None", "null"),
        )
    assert refused.value.field == field
    assert words in f"{refused.value} {refused.value.fix}"


@pytest.mark.parametrize(
    ("model", "field"),
    [
        ("{arch: qwen3}", "model.config.hidden_size"),
        ("{arch: qwen3, n_layer: 2}", "model.n_layer"),
        ("{arch: qwen3, style: llama}", "model.style"),
        ("{arch: qwen3, path: /weights}", "model.arch"),
        ("{config: {hidden_size: 3}, n_layer: 2, n_head: 2, d_model: 32}", "model.config"),
    ],
)
def test_an_architecture_beside_other_sizes_is_refused(
    cpu_host: HostFacts, text_corpus: CorpusFacts, model: str, field: str
) -> None:
    with pytest.raises(TrainmasterError) as refused:
        made_plan(cpu_host, text_corpus, model)
    assert refused.value.field == field


@pytest.mark.parametrize("framework", ["nanogpt", "litgpt"])
def test_only_frameworks_of_transformers_build_its_architectures(
    cpu_host: HostFacts, text_corpus: CorpusFacts, framework: str
) -> None:
    with pytest.raises(TrainmasterError, match="transformers' architectures are for hf and trl"):
        made_plan(
            cpu_host,
            text_corpus,
            f"{{arch: qwen3, config: {SMALL['qwen3']}}}",
            f"framework={framework}",
        )
