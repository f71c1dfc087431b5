"""Parameters of encoders that fill masks, and of encoder-decoders that restore spans, as
transformers counts them itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trainmaster.plan.architecture import Architecture, Decoder

Config = Mapping[str, Any]
Counted = tuple[Architecture, int, int]


def encoder_counted(arch: str, config: Config, seq_len: int) -> Counted | None:
    """The sizes that FLOPs and memory go by, the feed-forward's width, and the parameters; None
    where they are not counted here.

    Arguments:
        config: Complete, with its defaults.
    """
    count = _COUNTS.get(arch)
    return None if count is None else count(arch, config, seq_len)


def _bert(_: str, config: Config, seq_len: int) -> Counted:
    """Biases and norms everywhere, learned positions, and a head of its own before the output."""
    width, d_ff, vocab_size = (
        config[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    norm, square = 2 * width, width * width + width
    tables = vocab_size + config["max_position_embeddings"] + config["type_vocab_size"]
    tables += config["task_type_vocab_size"] if config.get("use_task_id") else 0
    block = 4 * square + 2 * norm + 2 * width * d_ff + d_ff + width
    count = tables * width + norm + config["num_hidden_layers"] * block
    count += square + norm + vocab_size + _output(config, vocab_size * width)
    return _encoder(config, seq_len, gated=False), d_ff, count


def _modernbert(_: str, config: Config, seq_len: int) -> Counted | None:
    """Without biases; the first block begins without a norm."""
    if config["attention_bias"] or config["mlp_bias"] or config["norm_bias"]:
        return None
    width, d_ff, vocab_size = (
        config[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    block = 4 * width * width + 2 * width + 3 * width * d_ff
    count = vocab_size * width + config["num_hidden_layers"] * block + width
    head = width * width + width * (2 if config["classifier_bias"] else 1)
    count += head + (vocab_size if config["decoder_bias"] else 0)
    return _encoder(config, seq_len, gated=True), d_ff, count + _output(config, vocab_size * width)


def _output(config: Config, table: int) -> int:
    return 0 if config.get("tie_word_embeddings", True) else table


def _encoder(config: Config, seq_len: int, *, gated: bool) -> Architecture:
    heads = config["num_attention_heads"]
    return Architecture(
        "llama" if gated else "gpt2",
        config["num_hidden_layers"],
        heads,
        heads,
        config["hidden_size"],
        config["intermediate_size"],
        config["vocab_size"],
        seq_len,
        tied=bool(config.get("tie_word_embeddings", True)),
        rotary=gated,
    )


def _t5(arch: str, config: Config, seq_len: int) -> Counted:
    """Norms without biases; the first block of each stack holds its relative positions, of umt5
    every block."""
    width, d_ff, heads = config["d_model"], config["d_ff"], config["num_heads"]
    encoder, decoder = config["num_layers"], config["num_decoder_layers"] or config["num_layers"]
    is_gated = str(config["feed_forward_proj"]).startswith("gated")
    attention = 4 * width * heads * config["d_kv"] + width
    feed_forward = (3 if is_gated else 2) * width * d_ff + width
    positions = config["relative_attention_num_buckets"] * heads
    count = encoder * (attention + feed_forward) + decoder * (2 * attention + feed_forward)
    count += positions * (encoder + decoder if arch == "umt5" else 2) + 2 * width
    table = config["vocab_size"] * width
    model = Architecture(
        "llama" if is_gated else "gpt2",
        encoder,
        heads,
        heads,
        width,
        d_ff,
        config["vocab_size"],
        seq_len,
        tied=bool(config.get("tie_word_embeddings", True)),
        rotary=True,
        d_head=config["d_kv"],
        decoder=Decoder(decoder),
    )
    return model, d_ff, count + table + _output(config, table)


_COUNTS: Mapping[str, Callable[[str, Config, int], Counted | None]] = {
    **dict.fromkeys(("bert", "ernie", "roberta", "xlm-roberta"), _bert),
    "modernbert": _modernbert,
    **dict.fromkeys(("mt5", "t5", "umt5"), _t5),
}
