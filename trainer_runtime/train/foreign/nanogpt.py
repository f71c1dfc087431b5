"""Checkpoints of nanoGPT's train.py: one `ckpt.pt`, written over again and again.

It holds `model`, `optimizer`, `model_args`, `iter_num`, `best_val_loss` and `config`. Its model
without biases is our GPT-2 under other names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from trainer_runtime.train.foreign.archives import read_archive, refuse_non_finite, tensors_within
from trainer_runtime.train.foreign.records import Examined, Kind, UnusableError

_KEYS = ("model", "optimizer", "model_args", "iter_num", "config")
_SIZES = ("n_layer", "n_head", "n_embd", "block_size", "vocab_size")
_COMPILED = "_orig_mod."  # what torch.compile puts before every name
_TIED = "lm_head.weight"  # the same as the embedding
_OF_BLOCK = {
    "ln_1.weight": "attention_norm.weight",
    "attn.c_attn.weight": "attention.to_heads.weight",
    "attn.c_proj.weight": "attention.to_residual.weight",
    "ln_2.weight": "feed_forward_norm.weight",
    "mlp.c_fc.weight": "feed_forward.widen.weight",
    "mlp.c_proj.weight": "feed_forward.to_residual.weight",
}
_MASK = ".attn.bias"  # the causal mask of versions without flash attention: no parameter
_UNMEASURED = 1e9  # what nanoGPT begins with
_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
_NOTES = (
    "nanoGPT keeps no random numbers: dropout uses new ones.",
    "nanoGPT draws its batches at random: from here on the data comes in our order.",
)


def _candidates(folder: Path) -> list[Path]:
    return [path for path in (folder / "ckpt.pt",) if path.is_file()]


def _examine(path: Path) -> Examined:
    document = _document(path)
    sizes = _sizes(document["model_args"])
    weights = _weights(document["model"], sizes)
    moments = _moments(document["optimizer"], weights)
    refuse_non_finite(document["model"], path.name)
    refuse_non_finite(dict(tensors_within(moments)), path.name)
    best = document.get("best_val_loss")
    is_measured = isinstance(best, (int, float, Tensor)) and float(best) < _UNMEASURED
    return Examined(
        step=_step(document["iter_num"]),
        metrics={"best_val_loss": float(best)} if best is not None and is_measured else {},
        shape=_shape(sizes),
        described={**_shape(sizes), **_described(sizes, document)},
        notes=_NOTES,
    )


NANOGPT = Kind("nanogpt", "ckpt.pt (nanoGPT)", _candidates, lambda _path: None, _examine)


def renamed(path: Path) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A checkpoint's weights, and its optimizer's state, by the names of our model.

    Raises:
        UnusableError: see `NANOGPT.examine`.
    """
    document = _document(path)
    weights = _weights(document["model"], _sizes(document["model_args"]))
    moments = _moments(document["optimizer"], weights)
    state = {
        f"{key}/{name}": value.clone().contiguous()
        for name, of_parameter in moments.items()
        for key, value in of_parameter.items()
    }
    return {name: tensor.clone().contiguous() for name, tensor in weights.items()}, state


def _document(path: Path) -> dict[str, Any]:
    document = read_archive(path)
    lacking = [key for key in _KEYS if not isinstance(document, dict) or key not in document]
    if lacking:
        raise UnusableError(f"{path.name} is not a checkpoint of nanoGPT: it lacks {lacking[0]}")
    for key in ("model", "optimizer", "model_args", "config"):
        if not isinstance(document[key], Mapping):
            raise UnusableError(
                f"{path.name} is not a checkpoint of nanoGPT: {key} is of another form"
            )
    return dict(document)


def _step(iterations: Any) -> int:
    """nanoGPT saves before the step of the iteration that it names: so many are done."""
    if type(iterations) is not int or iterations < 0:
        raise UnusableError("iter_num is not a number of steps")
    return iterations


def _sizes(arguments: Mapping[str, Any]) -> dict[str, int]:
    if arguments.get("bias", True):
        raise UnusableError(
            "its model has biases (bias=True), and the model of framework nanogpt has none; "
            "export it to a Hugging Face folder and start from its weights with framework: hf and "
            "model.path"
        )
    sizes = {name: arguments.get(name) for name in _SIZES}
    odd = [name for name, value in sizes.items() if type(value) is not int or not 0 < value < 2**31]
    if odd:
        raise UnusableError(f"model_args.{odd[0]} is not a valid size")
    return {name: int(value) for name, value in sizes.items() if value is not None}


def _weights(state: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """The parameters by our names, in the order in which nanoGPT's optimizer counts them."""
    if sizes["n_layer"] > len(state):
        raise UnusableError("model_args.n_layer is more than its model has")
    expected = _expected(sizes)
    tensors = {str(name).removeprefix(_COMPILED): value for name, value in state.items()}
    there = {name for name in tensors if not name.endswith(_MASK) and name != _TIED}
    if differing := sorted(there ^ expected.keys()):
        raise UnusableError(f"its model is not nanoGPT's own: {differing[0]}")
    for name, (_, shape) in expected.items():
        tensor = tensors[name]
        if not isinstance(tensor, Tensor) or tuple(tensor.shape) != shape:
            raise UnusableError(f"its model is not of the sizes in model_args: {name}")
    _refuse_untied(tensors)
    return {ours: tensors[name] for name, (ours, _) in expected.items()}


def _expected(sizes: Mapping[str, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """nanoGPT's names, each with ours and its shape."""
    width = sizes["n_embd"]
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "transformer.wte.weight": ("token_embedding.weight", (sizes["vocab_size"], width)),
        "transformer.wpe.weight": ("position_embedding.weight", (sizes["block_size"], width)),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "ln_1.weight": (width,),
        "attn.c_attn.weight": (3 * width, width),
        "attn.c_proj.weight": (width, width),
        "ln_2.weight": (width,),
        "mlp.c_fc.weight": (4 * width, width),
        "mlp.c_proj.weight": (width, 4 * width),
    }
    for block in range(sizes["n_layer"]):
        for theirs, ours in _OF_BLOCK.items():
            name = f"transformer.h.{block}.{theirs}"
            expected[name] = (f"blocks.{block}.{ours}", shapes[theirs])
    expected["transformer.ln_f.weight"] = ("final_norm.weight", (width,))
    return expected


def _refuse_untied(tensors: Mapping[str, Any]) -> None:
    head, embedding = tensors.get(_TIED), tensors["transformer.wte.weight"]
    if isinstance(head, Tensor) and not (head.shape == embedding.shape and head.equal(embedding)):
        raise UnusableError("its output is not tied to the embedding, as nanoGPT's is")


def _moments(optimizer: Mapping[str, Any], weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """AdamW's state by the names of our parameters: matrices are counted first, then vectors."""
    matrices = [name for name, tensor in weights.items() if tensor.dim() >= 2]
    vectors = [name for name, tensor in weights.items() if tensor.dim() < 2]
    groups, state = optimizer.get("param_groups"), optimizer.get("state")
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        raise UnusableError("its optimizer is not nanoGPT's AdamW")
    if [len(group.get("params", ())) for group in groups] != [len(matrices), len(vectors)]:
        raise UnusableError("its optimizer is of other parameters than its model")
    numbers = [*groups[0]["params"], *groups[1]["params"]]
    named = dict(zip(numbers, [*matrices, *vectors], strict=True))
    if state and state.keys() != named.keys():
        raise UnusableError("its optimizer lacks the state of a parameter")
    return {named[index]: _of_parameter(state[index], weights[named[index]]) for index in state}


def _of_parameter(state: Any, weight: Tensor) -> dict[str, Tensor]:
    kept = {key: state.get(key) for key in ("step", "exp_avg", "exp_avg_sq")}
    if not all(isinstance(value, Tensor) for value in kept.values()):
        raise UnusableError("its optimizer is not nanoGPT's AdamW")
    if any(kept[key].shape != weight.shape for key in ("exp_avg", "exp_avg_sq")):
        raise UnusableError("its optimizer is of other parameters than its model")
    return kept


def _shape(sizes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "model.n_layer": sizes["n_layer"],
        "model.n_head": sizes["n_head"],
        "model.d_model": sizes["n_embd"],
        "model.vocab_size": sizes["vocab_size"],
        "model.style": "gpt2",
        "data.seq_len": sizes["block_size"],
    }


def _described(sizes: Mapping[str, int], document: Mapping[str, Any]) -> dict[str, Any]:
    config = document["config"]
    described: dict[str, Any] = {
        "model.dropout": _number(document["model_args"].get("dropout")),
        "steps": _number(config.get("max_iters")),
        "optimizer.lr": _number(config.get("learning_rate")),
        "optimizer.weight_decay": _number(config.get("weight_decay")),
        "optimizer.grad_clip": _number(config.get("grad_clip")),
        "precision": _precision(config),
        "eval.every_steps": _number(config.get("eval_interval")),
        "eval.batches": _number(config.get("eval_iters")),
        **_schedule(config),
    }
    betas = [_number(config.get(name)) for name in ("beta1", "beta2")]
    if None not in betas:
        described["optimizer.betas"] = betas
    batch = [_number(config.get(name)) for name in ("batch_size", "gradient_accumulation_steps")]
    if isinstance(batch[0], int) and isinstance(batch[1], int):
        described["batch.tokens"] = batch[0] * batch[1] * sizes["block_size"]
    return {field: value for field, value in described.items() if value is not None}


def _precision(config: Mapping[str, Any]) -> str | None:
    # On a CPU nanoGPT computes in fp32, whatever it is asked for.
    if str(config.get("device", "")).startswith("cpu"):
        return "fp32"
    return _PRECISIONS.get(str(config.get("dtype")))


def _schedule(config: Mapping[str, Any]) -> dict[str, Any]:
    if config.get("decay_lr") is False:
        return {"schedule.kind": "constant", "schedule.warmup_steps": 0}
    highest, lowest = _number(config.get("learning_rate")), _number(config.get("min_lr"))
    ratio = round(lowest / highest, 6) if highest and lowest is not None else None
    return {
        "schedule.kind": "cosine",
        "schedule.warmup_steps": _number(config.get("warmup_iters")),
        "schedule.min_lr_ratio": ratio if ratio is not None and ratio <= 1 else None,
    }


def _number(value: Any) -> int | float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
