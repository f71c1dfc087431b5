"""The sizes of models that LitGPT knows by name, where they are sure; others have no estimates.

As `litgpt.config` of 0.5.13 has them; LitGPT makes each with an output embedding of its own.
"""

from __future__ import annotations

from typing import Literal

from trainer_runtime.core.records import dataclass
from trainmaster.plan.architecture import Architecture

_PYTHIA_VOCABULARY = 50304
_LLAMA_3_VOCABULARY = 128256


@dataclass(frozen=True, slots=True)
class _Sizes:
    n_layer: int
    n_head: int
    n_kv_head: int
    d_model: int
    d_ff: int
    vocab_size: int
    style: Literal["gpt2", "llama"] = "llama"


def _pythia(
    n_layer: int, n_head: int, d_model: int, vocab_size: int = _PYTHIA_VOCABULARY
) -> _Sizes:
    return _Sizes(n_layer, n_head, n_head, d_model, 4 * d_model, vocab_size, "gpt2")


_LLAMA_3_8B = _Sizes(32, 32, 8, 4096, 14336, _LLAMA_3_VOCABULARY)
_LLAMA_3_70B = _Sizes(80, 64, 8, 8192, 28672, _LLAMA_3_VOCABULARY)
_SIZES = {
    "pythia-14m": _pythia(6, 4, 128),
    "pythia-31m": _pythia(6, 8, 256),
    "pythia-70m": _pythia(6, 8, 512),
    "pythia-160m": _pythia(12, 12, 768),
    "pythia-410m": _pythia(24, 16, 1024),
    "pythia-1b": _pythia(16, 8, 2048),
    "pythia-1.4b": _pythia(24, 16, 2048),
    "pythia-2.8b": _pythia(32, 32, 2560),
    "pythia-6.9b": _pythia(32, 32, 4096, 50432),
    "pythia-12b": _pythia(36, 40, 5120, 50688),
    "tiny-llama-1.1b": _Sizes(22, 32, 4, 2048, 5632, 32000),
    "Llama-2-7b-hf": _Sizes(32, 32, 32, 4096, 11008, 32000),
    "Llama-2-13b-hf": _Sizes(40, 40, 40, 5120, 13824, 32000),
    "Llama-3-8B": _LLAMA_3_8B,
    "Llama-3.1-8B": _LLAMA_3_8B,
    "Llama-3-70B": _LLAMA_3_70B,
    "Llama-3.1-70B": _LLAMA_3_70B,
    "Llama-3.2-1B": _Sizes(16, 32, 8, 2048, 8192, _LLAMA_3_VOCABULARY),
    "Llama-3.2-3B": _Sizes(28, 24, 8, 3072, 8192, _LLAMA_3_VOCABULARY),
    "Mistral-7B-v0.1": _Sizes(32, 32, 8, 4096, 14336, 32000),
    "SmolLM2-135M": _Sizes(30, 9, 3, 576, 1536, 49152),
    "SmolLM2-360M": _Sizes(32, 15, 5, 960, 2560, 49152),
    "SmolLM2-1.7B": _Sizes(24, 32, 32, 2048, 8192, 49152),
}


def litgpt_architecture(name: str, seq_len: int) -> Architecture | None:
    """The architecture of LitGPT's model of this name; None where its sizes are not known here."""
    sizes = _SIZES.get(name.rpartition("/")[2])
    if sizes is None:
        return None
    is_pythia = sizes.style == "gpt2"
    return Architecture(
        style=sizes.style,
        n_layer=sizes.n_layer,
        n_head=sizes.n_head,
        n_kv_head=sizes.n_kv_head,
        d_model=sizes.d_model,
        d_ff=sizes.d_ff,
        vocab_size=sizes.vocab_size,
        seq_len=seq_len,
        biases=is_pythia,
        tied=False,
        rotary=is_pythia,
    )
