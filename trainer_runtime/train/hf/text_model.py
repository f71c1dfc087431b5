"""A model of transformers that writes text, while it is trained or loaded from a folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from trainer_runtime.core.config.objectives import OBJECTIVES
from trainer_runtime.core.frameworks import byte_tokenizer
from trainer_runtime.train.attempt.config import ConfigError, RunConfig
from trainer_runtime.train.loop.drawing import TextModel
from trainer_runtime.train.loop.sampling import SavedModel

ADAPTER = "adapter_config.json"
_UNREADABLE = (OSError, ValueError, RuntimeError, ImportError, KeyError)


def text_model_of(model: Any, tokenizer: Any, *, chat: bool) -> TextModel:
    """`chat`: a prompt is a user's message, in the tokenizer's chat template.

    Raises:
        ConfigError: it has none.
    """
    if chat and not tokenizer.chat_template:
        raise ConfigError("the tokenizer has no chat template: leave `chat` out")

    def encode(prompt: str) -> Sequence[int]:
        if chat:
            messages = [{"role": "user", "content": prompt}]
            prompt = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False
            )
        token_ids: list[int] = tokenizer(prompt, add_special_tokens=not chat)["input_ids"]
        start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else _end(tokenizer)
        return token_ids or [start]

    def decode(tokens: Sequence[int]) -> str:
        return str(tokenizer.decode(tokens, skip_special_tokens=True))

    return TextModel(_logits_of(model), encode, decode, _ends(model, tokenizer))


def load(saved: SavedModel) -> TextModel:
    """The model of a run, or that of a program which saves folders of transformers.

    Raises:
        ConfigError: as `load_text_model`; or the model's objective is another one than to write.
    """
    config, is_program = saved.config, saved.config.script is not None
    if not OBJECTIVES[config.objective].writes_text:
        raise ConfigError(
            f"a model that was trained by objective {config.objective} writes no text"
        )
    place = saved.folder
    base = config.model.path or config.model.hub
    tokenizer = place if is_program else _tokenizer_folder(config, saved.attempt, place)
    return load_text_model(
        place,
        base,
        saved.device,
        chat=saved.request.chat,
        tokenizer=tokenizer,
        averages=saved.averages,
    )


def _tokenizer_folder(config: RunConfig, attempt: Path, folder: Path) -> Path:
    """Beside the weights, else the one that the run was trained by."""
    if any(folder.glob("tokenizer*")):
        return folder
    if config.data.tokenizer == "byte":
        return attempt / byte_tokenizer.FOLDER
    return Path(config.data.tokenizer)


def load_text_model(
    folder: Path,
    base: str | None,
    device: str,
    *,
    chat: bool,
    tokenizer: Path,
    averages: Mapping[str, Tensor] | None = None,
) -> TextModel:
    """The model in `folder`, which is an adapter of `base` where it holds one, merged into it;
    `averages` take the place of weights.

    Weights are read from safetensors alone, and no code of the folder's is run.

    Raises:
        ConfigError: the folder holds no such model, or the environment can't read it.
    """
    safe = {"trust_remote_code": False, "local_files_only": True}
    try:
        if (folder / ADAPTER).is_file():
            model = _merged(folder, base, averages or {}, safe)
        else:
            model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, **safe)
            _put(averages or {}, model)
        loaded_tokenizer = AutoTokenizer.from_pretrained(tokenizer, **safe)
    except _UNREADABLE as error:
        first = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{folder.name} can't be read as a causal model: {first}") from None
    return text_model_of(model.to(device).eval(), loaded_tokenizer, chat=chat)


def _merged(
    folder: Path, base: str | None, averages: Mapping[str, Tensor], safe: dict[str, Any]
) -> Any:
    from peft import PeftModel

    if base is None:
        raise ConfigError("the adapter's own model is not known")
    if not (folder / "adapter_model.safetensors").is_file():
        raise ConfigError("the adapter has no safetensors")
    model = AutoModelForCausalLM.from_pretrained(base, **safe)
    adapted = PeftModel.from_pretrained(model, folder)
    _put(averages, adapted)
    return adapted.merge_and_unload()


@torch.no_grad()
def _put(averages: Mapping[str, Tensor], model: Any) -> None:
    weights = dict(model.named_parameters())
    for name, average in averages.items():
        weights[name].copy_(average)


def _logits_of(model: Any) -> Callable[[Sequence[int]], Tensor]:
    """With the keys and values of the tokens before, as long as they fit the model's positions."""
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    device = next(model.parameters()).device
    cache: Any = None
    seen: list[int] = []

    def next_logits(tokens: Sequence[int]) -> Tensor:
        nonlocal cache, seen
        fits = longest is None or len(tokens) <= longest
        continues = fits and cache is not None and list(tokens[: len(seen)]) == seen
        new = tokens[len(seen) :] if continues else tokens[-(longest or len(tokens)) :]
        output = model(
            input_ids=torch.tensor([list(new)], device=device),
            past_key_values=cache if continues else None,
            use_cache=fits,
        )
        cache = getattr(output, "past_key_values", None) if fits else None
        seen = list(tokens) if cache is not None else []
        logits: Tensor = output.logits[0, -1]
        return logits

    return next_logits


def _end(tokenizer: Any) -> int:
    return int(tokenizer.eos_token_id or 0)


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    of_model = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = of_model if isinstance(of_model, list) else [of_model]
    return frozenset(end for end in (*listed, tokenizer.eos_token_id) if end is not None)
