"""What a model of so many parameters reaches on GPUs, by the throughput model alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainer_runtime.core.environment.gpus import Gpu
from trainmaster.plan.architecture import Architecture, flops_per_token, parameters
from trainmaster.plan.decisions.memory import GIB, STATE_BYTES_PER_PARAMETER, Sharing
from trainmaster.plan.decisions.throughput import Step, modelled_mfu
from trainmaster.plan.decisions.trainer_process import WHOLE_WEIGHTS
from trainmaster.plan.named_models import NamedModel, named_models

_LONGEST = 4096
# Of a GPU's memory, what state may take where activations need room as well.
_STATE_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Reach:
    """`like`: the published model whose shape was taken, with sequences of `seq_len` tokens.

    `mfu`: by `strategy`, compiled or not. `gains`: by field, how many times faster with another
    value that a plan would have. `exchange_share`: of a step, waiting for other GPUs.
    """

    like: str
    seq_len: int
    strategy: str
    flops_per_token: float
    mfu: float
    gains: Mapping[str, float]
    exchange_share: float


def reach_of(count_parameters: int, gpu: Gpu, count: int, *, compiled: bool = False) -> Reach:
    """The expectation for a dense model in half precision, on `count` GPUs of a kind."""
    nearest = min(
        (model for model in named_models() if model.is_gpt2 or model.is_plain_llama),
        key=lambda model: _times_apart(model.parameters, count_parameters),
    )
    shape = _shape(nearest)
    state_gib = count_parameters * STATE_BYTES_PER_PARAMETER / GIB
    fits_whole = state_gib <= _STATE_SHARE * gpu.memory_gib
    strategy = "single" if count == 1 else "ddp" if fits_whole else "fsdp"
    plain = Step(sharing=Sharing(strategy, count), compiled=compiled)
    mfu = modelled_mfu(shape, gpu, plain)
    gains = {}
    if not compiled and strategy in WHOLE_WEIGHTS:
        gains["compute.compile"] = modelled_mfu(shape, gpu, replace(plain, compiled=True)) / mfu
    if count > 1:
        larger = replace(plain, tokens=2 * plain.tokens)
        gains["batch.micro_batch"] = modelled_mfu(shape, gpu, larger) / mfu
    return Reach(
        like=nearest.name,
        seq_len=shape.seq_len,
        strategy=strategy,
        flops_per_token=flops_per_token(shape) * count_parameters / parameters(shape),
        mfu=mfu,
        gains=gains,
        exchange_share=max(0.0, 1 - mfu / modelled_mfu(shape, gpu, Step(compiled=compiled))),
    )


def _times_apart(one: float, other: float) -> float:
    return max(one, other) / min(one, other)


def _shape(model: NamedModel) -> Architecture:
    return Architecture(
        style="gpt2" if model.is_gpt2 else "llama",
        n_layer=model.n_layer,
        n_head=model.n_head,
        n_kv_head=model.n_kv_head,
        d_model=model.d_model,
        d_ff=model.d_ff,
        vocab_size=model.vocab_size,
        seq_len=min(model.seq_len, _LONGEST),
    )
