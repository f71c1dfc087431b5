"""What is trained."""

from __future__ import annotations

from dataclasses import dataclass

from trainer_runtime.core.decoding import Fields


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The architecture, and where the weights come from.

    Sizes are 0 where only the model itself knows them. `style` is gpt2 or llama, empty where
    the config has null; `d_ff` is the hidden width of the feed-forward. `preset` names an
    architecture of the framework's, `path` a folder of the host with a model, `hub` a model of the
    hub at `revision`.
    """

    n_layer: int
    n_head: int
    n_kv_head: int
    d_model: int
    d_ff: int
    vocab_size: int
    style: str = "gpt2"
    dropout: float = 0.0
    preset: str | None = None
    path: str | None = None
    hub: str | None = None
    revision: str | None = None

    @classmethod
    def of(cls, fields: Fields) -> ModelConfig:
        return cls(
            n_layer=fields.integer("n_layer", 0),
            n_head=fields.integer("n_head", 0),
            n_kv_head=fields.integer("n_kv_head", 0),
            d_model=fields.integer("d_model", 0),
            d_ff=fields.integer("d_ff", 0),
            vocab_size=fields.integer("vocab_size", 0),
            style=fields.text("style", "" if "style" in fields.values else "gpt2"),
            dropout=fields.number("dropout", 0.0),
            preset=fields.find_text("preset"),
            path=fields.find_text("path"),
            hub=fields.find_text("hub"),
            revision=fields.find_text("revision"),
        )

    @property
    def has_weights(self) -> bool:
        """Whether it starts from given weights, rather than from random ones."""
        return bool(self.path or self.hub)


@dataclass(frozen=True, slots=True)
class AdapterConfig:
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
