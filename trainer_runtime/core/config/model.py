"""What is trained."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainer_runtime.core.decoding import Fields, JsonRecord


def _style(fields: Fields) -> str:
    return fields.text("style", "" if "style" in fields.values else "gpt2")


@dataclass(frozen=True, slots=True)
class ModelConfig(JsonRecord):
    """The architecture, and where the weights come from.

    Sizes are 0 where only the model itself knows them. `style` is gpt2 or llama, empty where
    the config has null; `d_ff` is the hidden width of the feed-forward. `preset` names an
    architecture of the framework's, `path` a folder of the host with a model, `hub` a model of the
    hub at `revision`.
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
