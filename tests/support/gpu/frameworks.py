"""Short trainings by the other frameworks, where their packages are at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.benchmarks.result import at_least
from support.gpu.part import Setting
from support.gpu.runs import Run, base_config
from support.host.run_configs import Config, model_of

from trainer_runtime.core.files.corpus import Source, fingerprint, list_files
from trainer_runtime.core.frameworks import byte_tokenizer

_STEPS = 20
_PRESET = "pythia-14m"
_LORA = {"kind": "lora", "r": 8, "alpha": 16.0, "dropout": 0.0, "targets": "auto"}


def train_hf(setting: Setting) -> None:
    """HF's Trainer from scratch, with and without activation checkpointing."""
    for recomputes in (False, True):
        config = base_config(
            setting, "hf", steps=_STEPS, compute__activation_checkpointing=recomputes
        )
        config["model"]["vocab_size"] = byte_tokenizer.VOCABULARY
        name = "recomputing" if recomputes else "plain"
        _report(setting, f"hf, {name}", Run(setting, f"hf-{name}", "hf_new", config))


def train_trl(setting: Setting) -> None:
    """Supervised finetuning by TRL with LoRA."""
    _report(setting, "trl, sft, lora", _trl_lora(setting, quantize=None))


def train_trl_nf4(setting: Setting) -> None:
    """The same on frozen weights in 4 bits."""
    _report(setting, "trl, sft, lora, nf4", _trl_lora(setting, quantize="nf4"))


def _trl_lora(setting: Setting, quantize: str | None) -> Run:
    config = _finetuning(setting, "trl", quantize)
    config["model"]["path"] = str(_saved_model(setting))
    return Run(setting, "trl-lora", "trl_sft_lora", config)


def train_litgpt(setting: Setting) -> None:
    """LitGPT's pretraining of a Llama."""
    config = base_config(setting, "litgpt", steps=_STEPS)
    config["model"] = model_of(_size(setting), byte_tokenizer.VOCABULARY, style="llama")
    _report(setting, "litgpt, pretrain", Run(setting, "litgpt", "litgpt_pretrain", config))


def train_litgpt_lora(setting: Setting) -> None:
    """LitGPT's finetuning with LoRA, on a model that it knows by name."""
    _report(setting, "litgpt, lora", _litgpt_lora(setting, quantize=None))


def train_litgpt_nf4(setting: Setting) -> None:
    """The same on frozen weights in 4 bits."""
    _report(setting, "litgpt, lora, nf4", _litgpt_lora(setting, quantize="nf4"))


def _litgpt_lora(setting: Setting, quantize: str | None) -> Run:
    config = _finetuning(setting, "litgpt", quantize)
    config["model"] |= {"path": str(_saved_for_litgpt(setting)), "preset": _PRESET}
    config["adapter"]["targets"] = ["q_proj", "v_proj", "o_proj"]
    return Run(setting, "litgpt-lora", "litgpt_finetune_lora", config)


def _report(setting: Setting, name: str, run: Run) -> None:
    """Train it and report by how much the loss falls from the first three steps to the last."""
    try:
        losses = [loss for (loss,) in run.start().completed().values("loss").values()]
    except RuntimeError as error:
        setting.bench.not_run(name, f"it failed: {error}")
        return
    finally:
        run.end()
    fall = sum(losses[:3]) / 3 - sum(losses[-3:]) / 3
    setting.bench.report(f"{name}: fall of the loss", "nats", ours=[fall], goal=at_least(0.05))


def _size(setting: Setting) -> dict[str, int]:
    if setting.tiny:
        return {"n_layer": 2, "n_head": 2, "d_model": 32}
    return {"n_layer": 4, "n_head": 4, "d_model": 256}


def _finetuning(setting: Setting, framework: str, quantize: str | None) -> Config:
    rows = _written_rows(setting.folder / "rows" / "sums.jsonl")
    config = base_config(
        setting,
        framework,
        method="sft",
        steps=_STEPS,
        adapter={**_LORA, "quantize": quantize},
        optimizer__lr=1e-2,
    )
    config["model"] = model_of(_size(setting), byte_tokenizer.VOCABULARY, style="llama")
    source: dict[str, Any] = {"name": "main", "path": str(rows.parent), "format": "jsonl"}
    listed = [Source("main", str(rows.parent), list_files(rows.parent, "jsonl"), "jsonl")]
    made = fingerprint(listed, "byte", config["data"]["seq_len"], "dataset")
    config["data"] |= {"sources": [source], "form": "dataset", "fingerprint": made}
    return config


def _saved_model(setting: Setting) -> Path:
    """A Llama with random weights, and the byte tokenizer beside it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    size, end = _size(setting), byte_tokenizer.END_OF_TEXT
    special: dict[str, Any] = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end)
    config = LlamaConfig(
        vocab_size=byte_tokenizer.VOCABULARY,
        hidden_size=size["d_model"],
        intermediate_size=4 * size["d_model"],
        num_hidden_layers=size["n_layer"],
        num_attention_heads=size["n_head"],
        num_key_value_heads=size["n_head"],
        max_position_embeddings=256,
        **special,
    )
    folder = setting.folder / "model"
    LlamaForCausalLM(config).save_pretrained(folder)
    for name, text in byte_tokenizer.files().items():
        (folder / Path(name).name).write_text(text)
    return folder


def _saved_for_litgpt(setting: Setting) -> Path:
    """The smallest model that LitGPT knows, with random weights, in its own format."""
    import torch
    from litgpt import GPT
    from litgpt import Config as Sizes
    from litgpt.utils import save_config

    torch.manual_seed(0)
    folder = setting.folder / "model"
    folder.mkdir()
    sizes = Sizes.from_name(_PRESET)
    torch.save(GPT(sizes).state_dict(), folder / "lit_model.pth")
    save_config(sizes, folder)
    for name, text in byte_tokenizer.files().items():
        (folder / Path(name).name).write_text(text)
    return folder


def _written_rows(path: Path) -> Path:
    path.parent.mkdir()
    rows = [
        {"prompt": f"{first} + {second} = ", "completion": str(first + second)}
        for first in range(20)
        for second in range(20)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path
