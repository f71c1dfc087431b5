"""The encodings of tiktoken by name: `data.tokenizer: tiktoken:o200k_base`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

PREFIX = "tiktoken:"
# Ships the ranks of some encodings.
PACKAGE = "bpe-openai"
END_OF_TEXT = "<|endoftext|>"
_ADDRESS = "https://openaipublic.blob.core.windows.net"
_FILL_IN_THE_MIDDLE = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")

# How texts are split before pairs are merged, as Oniguruma reads it; `\z` is the end of the text.
GPT2 = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
CL100K = (
    r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"""
    r""" ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]|\s+(?!\S)|\s"""
)
_O200K_ENDING = r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)?"""
O200K = "|".join(
    (
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"""
        + _O200K_ENDING,
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"""
        + _O200K_ENDING,
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    )
)


@dataclass(frozen=True, slots=True)
class RankFile:
    """A file of ranks: where tiktoken fetches it, by which it is named in tiktoken's cache."""

    address: str
    sha256: str


@dataclass(frozen=True, slots=True)
class TiktokenEncoding:
    """`vocab_size`: the highest token's number and one. `file`: its ranks, a line each; `merges`: a
    file of pairs that says the same. `is_shipped`: the package has the ranks, too."""

    vocab_size: int
    end_of_text: int
    pattern: str
    file: RankFile
    merges: RankFile | None = None
    is_shipped: bool = False
    other_special: Mapping[str, int] = field(default_factory=dict)

    @property
    def special(self) -> dict[str, int]:
        """The special tokens' numbers."""
        return {END_OF_TEXT: self.end_of_text, **self.other_special}


def _ranks(name: str, sha256: str) -> RankFile:
    return RankFile(f"{_ADDRESS}/encodings/{name}.tiktoken", sha256)


_R50K = TiktokenEncoding(
    50257,
    50256,
    GPT2,
    _ranks("r50k_base", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"),
    RankFile(
        f"{_ADDRESS}/gpt-2/encodings/main/vocab.bpe",
        "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    ),
)
ENCODINGS: Mapping[str, TiktokenEncoding] = {
    "gpt2": _R50K,
    "r50k_base": _R50K,
    "p50k_base": TiktokenEncoding(
        50281,
        50256,
        GPT2,
        _ranks("p50k_base", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"),
    ),
    "cl100k_base": TiktokenEncoding(
        100277,
        100257,
        CL100K,
        _ranks("cl100k_base", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),
        is_shipped=True,
        other_special={
            **{name: 100258 + number for number, name in enumerate(_FILL_IN_THE_MIDDLE)},
            "<|endofprompt|>": 100276,
        },
    ),
    "o200k_base": TiktokenEncoding(
        200019,
        199999,
        O200K,
        _ranks("o200k_base", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),
        is_shipped=True,
        other_special={"<|endofprompt|>": 200018},
    ),
}


def encoding_name(tokenizer: str) -> str | None:
    """The name in `tiktoken:NAME`; None for any other tokenizer."""
    return tokenizer.removeprefix(PREFIX) if tokenizer.startswith(PREFIX) else None
