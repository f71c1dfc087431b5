"""What is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields, JsonRecord


def _style(fields: Fields) -> str:
    return fields.text("style", "" if "style" in fields.values else "gpt2")


ROPE_BASE = 10_000.0
GATED = ("swiglu", "geglu")


@dataclass(frozen=True, slots=True)
class Style:
    """What a style of the nanogpt scripts is by default: the norm, and the feed-forward's.

    `exported`: transformers' names of the activations that its own model of the style can have;
    no other norm than the style's is among its models. `windows`: they have.
    """

    norm: str
    activation: str
    exported: Mapping[str, str]
    windows: bool = False


STYLES: Mapping[str, Style] = {
    "gpt2": Style("layernorm", "gelu", {"gelu": "gelu", "relu2": "relu2"}),
    "llama": Style("rmsnorm", "swiglu", {"swiglu": "silu", "geglu": "gelu"}, windows=True),
    "modern": Style("rmsnorm_no_gain", "relu2", {"relu2": "relu2", "gelu": "gelu"}),
}


@dataclass(frozen=True, slots=True)
class RopeScaling(JsonRecord):
    """Rotary positions for sequences `factor` times as long as the model knows."""

    kind: str
    factor: float


@dataclass(frozen=True, slots=True)
class ModelConfig(JsonRecord):
    """The architecture, and where the weights come from.

    Sizes are 0 where only the model itself knows them. `style` is one of `STYLES`, empty where
    the config has null; an empty `norm` or `activation` becomes the style's. `d_ff` is the hidden
    width of the feed-forward. `window`: the last tokens that attention sees, None for all.
    `ngram_embeddings`: rows of the table of embeddings of the last tokens together, or 0; with
    them, each block adds a learned share of the embedding to its input.
    `preset` names an architecture of the framework's, `arch` one of transformers' that `config`
    describes in its own words, `path` a folder of the host with a model, `hub` a model of the hub
    at `revision`, whose embeddings `extend_vocab` gives `vocab_size` rows. `attention`: its
    implementation, None for the framework's choice.
    """

    n_layer: int = 0
    n_head: int = 0
    n_kv_head: int = 0
    d_model: int = 0
    d_ff: int = 0
    vocab_size: int = 0
    style: str = field(default="gpt2", metadata={"read": _style})
    dropout: float = 0.0
    preset: str | None = None
    path: str | None = None
    hub: str | None = None
    revision: str | None = None
    norm: str = ""
    activation: str = ""
    rope_base: float | None = None
    window: int | None = None
    value_embeddings: bool = False
    ngram_embeddings: int = 0
    arch: str | None = None
    config: Mapping[str, object] = field(default_factory=dict)
    attention: str | None = None
    extend_vocab: bool = False
    rope_scaling: RopeScaling | None = None

    def __post_init__(self) -> None:
        usual = STYLES.get(self.style)
        if usual is not None:
            object.__setattr__(self, "norm", self.norm or usual.norm)
            object.__setattr__(self, "activation", self.activation or usual.activation)

    @property
    def is_changed(self) -> bool:
        """Whether existing weights are changed before they are trained."""
        changes_positions = self.rope_base is not None or self.rope_scaling is not None
        return self.extend_vocab or changes_positions

    @property
    def rotary_base(self) -> float:
        """The base of rotary positions in the scripts' own models."""
        return self.rope_base or ROPE_BASE

    @property
    def kv_width(self) -> int:
        """Features of all key (or value) heads together."""
        return self.d_model // self.n_head * self.n_kv_head

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward has a third matrix, whose result gates the others'."""
        return self.activation in GATED

    @property
    def is_exported(self) -> bool:
        """Whether transformers has a model that computes the same as the scripts' own."""
        style = STYLES[self.style]
        fits_window = self.window is None or style.windows
        is_usual = self.norm == style.norm and self.activation in style.exported
        adds = self.value_embeddings or self.ngram_embeddings
        return is_usual and fits_window and not adds

    @property
    def layers_with_value_embeddings(self) -> tuple[int, ...]:
        """Every second layer, the last one included."""
        every_second = range((self.n_layer - 1) % 2, self.n_layer, 2)
        return tuple(every_second) if self.value_embeddings else ()

    @property
    def has_weights(self) -> bool:
        """Whether it starts from given weights, rather than from random ones."""
        return bool(self.path or self.hub)


@dataclass(frozen=True, slots=True)
class AdapterConfig(JsonRecord):
    """A low-rank adapter, trained in place of the model's weights.

    `targets`: the modules that it adapts, None for all linear ones. `quantize`: the format that the
    frozen weights are kept in, None for their own.
    """

    kind: str
    r: int
    alpha: float
    dropout: float = 0.0
    targets: tuple[str, ...] | None = None
    quantize: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> AdapterConfig:
        is_auto = fields.values.get("targets", "auto") == "auto"
        return cls(
            kind=fields.text("kind", "lora"),
            r=fields.integer("r"),
            alpha=fields.number("alpha"),
            dropout=fields.number("dropout", 0.0),
            targets=None if is_auto else fields.texts("targets"),
            quantize=fields.find_text("quantize"),
        )
