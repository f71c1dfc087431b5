"""LitGPT's final model in the names and files of transformers, in the folder `hf` of it.

The tensors are converted by LitGPT. Its style gpt2 is GPT-NeoX to transformers, whose feed-forward
has biases, which are zero here; shared key heads it has not.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from trainer_runtime.core.config import ModelConfig
from trainer_runtime.core.config.model import ROPE_BASE
from trainer_runtime.train.attempt.config import RunConfig
from trainer_runtime.train.checkpoints import hf_export
from trainer_runtime.train.data import tokenizers

NAME = "hf"
_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_COPIED = (
    "generation_config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
)
_UNABLE = (KeyError, NotImplementedError, OSError, RuntimeError, SafetensorError, ValueError)


def write_for_transformers(final: Path, config: RunConfig) -> None:
    """Write `final/hf`, which `AutoModelForCausalLM.from_pretrained` loads; where that can't be
    done, say why in the log: the model is there as LitGPT has it."""
    folder = final / NAME
    try:
        document = _config_of(final, config)
        tensors = _converted(final, folder)
        _write(folder, tensors, document)
    except _UNABLE as error:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"No {NAME} folder for transformers in the final model: {error}", flush=True)
        return
    for pattern in _COPIED:
        for path in final.glob(pattern):
            shutil.copyfile(path, folder / path.name)


def _config_of(final: Path, config: RunConfig) -> Mapping[str, Any]:
    """The `config.json`: that of the model which was continued, or one by our sizes.

    Raises:
        ValueError: it is neither, or transformers has no such model.
    """
    if (final / _CONFIG).exists():
        document: dict[str, Any] = json.loads((final / _CONFIG).read_text())
        return document
    model = config.model
    if model.preset or model.path or model.hub:
        raise ValueError(f"it brings no {_CONFIG}")
    end = tokenizers.end_of_text(config.data)
    if model.style == "llama":
        return hf_export.config_of(model, config.data.seq_len, end)
    if model.n_kv_head != model.n_head:
        raise ValueError("GPT-NeoX has as many key heads as query heads")
    return _neox_config(model, config.data.seq_len, end)


def _neox_config(model: ModelConfig, seq_len: int, end_of_text: int | None) -> dict[str, Any]:
    return {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        "hidden_size": model.d_model,
        "intermediate_size": model.d_ff,
        "num_hidden_layers": model.n_layer,
        "num_attention_heads": model.n_head,
        "max_position_embeddings": seq_len,
        "layer_norm_eps": hf_export.NORM_EPSILON,
        "rotary_pct": 1.0,
        "rotary_emb_base": ROPE_BASE,
        "use_parallel_residual": False,
        "attention_bias": False,
        "hidden_act": "gelu",
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "tie_word_embeddings": True,
        "vocab_size": model.vocab_size,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
    }


def _converted(final: Path, folder: Path) -> dict[str, Tensor]:
    """The weights under transformers' names.

    Raises:
        KeyError, NotImplementedError, RuntimeError: LitGPT can't convert them.
        OSError: they can't be written.
    """
    from litgpt.scripts.convert_lit_checkpoint import convert_lit_checkpoint

    with contextlib.redirect_stdout(io.StringIO()):  # it prints its arguments
        convert_lit_checkpoint(final, folder)
    path = folder / "model.pth"
    tensors: dict[str, Tensor] = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    path.unlink()
    return tensors


def _write(folder: Path, tensors: Mapping[str, Tensor], document: Mapping[str, Any]) -> None:
    kept = dict(tensors)
    if document.get("tie_word_embeddings"):
        for name in ("embed_out.weight", "lm_head.weight"):
            kept.pop(name, None)
    if document.get("model_type") == "gpt_neox":
        kept = {**_biases(kept), **kept}
    kept = {name: tensor.contiguous() for name, tensor in kept.items()}
    save_file(kept, folder / _WEIGHTS, metadata={"format": "pt"})
    (folder / _CONFIG).write_text(json.dumps(document, indent=2) + "\n")


def _biases(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Zeros for the layers that have a bias in GPT-NeoX."""
    return {
        name.replace(".weight", ".bias"): torch.zeros_like(tensor[:, 0])
        for name, tensor in tensors.items()
        if ".mlp." in name and name.endswith(".weight")
    }
