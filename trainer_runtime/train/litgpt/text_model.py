"""A model of LitGPT that writes text, while it is trained or loaded from a checkpoint."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer_runtime.core.frameworks import litgpt as written
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.checks.pickles import UnsafeTorchError, refuse_unsafe_torch
from trainer_runtime.train.data.tokenizers import tokenizer_of
from trainer_runtime.train.litgpt.state import LORA_FILE, MODEL_FILE
from trainer_runtime.train.loop.drawing import TextModel
from trainer_runtime.train.loop.sampling import SavedModel

_CONFIG = "model_config.yaml"


def text_model_of(model: Any, config: RunConfig, device: Any) -> TextModel:
    """By the run's tokenizer. `model`: LitGPT's, which takes at most `max_seq_length` tokens.

    Raises:
        ConfigError: the tokenizer can't be used.
    """
    longest = int(model.max_seq_length)

    def next_logits(tokens: Sequence[int]) -> Tensor:
        logits: Tensor = model(torch.tensor([list(tokens)[-longest:]], device=device))[0, -1]
        return logits[:vocabulary]

    tokenizer = tokenizer_of(config.data)
    vocabulary = tokenizer.vocab_size
    return TextModel.of(next_logits, tokenizer)


def load(saved: SavedModel) -> TextModel:
    """The model of a run; raises as `load_text_model`."""
    return load_text_model(saved.folder, saved.config, saved.device, saved.averages)


def load_text_model(
    folder: Path, config: RunConfig, device: str, averages: Mapping[str, Tensor] | None = None
) -> TextModel:
    """The model in `folder`, `final` or a checkpoint; an adapter is merged into its own model, and
    `averages` take the place of weights.

    Pickles are opened for their tensors alone.

    Raises:
        ConfigError: it can't be read.
    """
    from litgpt.lora import merge_lora_weights

    is_adapter = not (folder / MODEL_FILE).is_file() and (folder / LORA_FILE).is_file()
    try:
        model = _empty(folder, config, is_adapter=is_adapter)
        if is_adapter:
            base = Path(str(written.start_folder(config)), MODEL_FILE)
            model.load_state_dict(_tensors(base), strict=False)
            model.load_state_dict(_tensors(folder / LORA_FILE), strict=False)
            model.load_state_dict(averages or {}, strict=False)
            merge_lora_weights(model)
        else:
            model.load_state_dict(_tensors(folder / MODEL_FILE))
            model.load_state_dict(averages or {}, strict=False)
    except (OSError, RuntimeError, ValueError, pickle.UnpicklingError, UnsafeTorchError) as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{folder.name} can't be read: {first}") from None
    model.to(device).eval()
    return text_model_of(model, config, device)


def _empty(folder: Path, config: RunConfig, *, is_adapter: bool) -> Any:
    from litgpt import lora, model

    if not is_adapter:
        return model.GPT(model.Config.from_file(folder / _CONFIG))
    if config.adapter is None:
        raise ConfigError(f"{folder.name} holds an adapter, and the run trains none")
    own = {key: value for key, value in written.lora(config.adapter).items() if key != "quantize"}
    adapted = lora.GPT(lora.Config.from_file(folder / _CONFIG, **own))
    lora.mark_only_lora_as_trainable(adapted)
    return adapted


def _tensors(path: Path) -> Mapping[str, Tensor]:
    refuse_unsafe_torch()
    held = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    tensors: Mapping[str, Tensor] = (
        held["model"] if isinstance(held.get("model"), Mapping) else held
    )
    return tensors
