"""The configuration as a whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_runtime.core.config.data import DataConfig, InputConfig
from trainer_runtime.core.config.environment import EnvironmentConfig
from trainer_runtime.core.config.foreign import AdoptedConfig, AttachedConfig
from trainer_runtime.core.config.model import AdapterConfig, ModelConfig
from trainer_runtime.core.config.objectives import CAUSAL
from trainer_runtime.core.config.optimization import (
    BatchConfig,
    DerivedConfig,
    EvaluationConfig,
    OptimizerConfig,
    ScheduleConfig,
)
from trainer_runtime.core.config.phases import PhaseConfig
from trainer_runtime.core.config.running import (
    AttemptConfig,
    CheckpointConfig,
    ComputeConfig,
    LimitsConfig,
    RecoveryConfig,
    RehearsalConfig,
)
from trainer_runtime.core.config.script import ScriptConfig
from trainer_runtime.core.decoding import DecodingError, Fields, JsonRecord, decode_value
from trainer_runtime.core.protocol.lines import ATTACHED

CONFIG_VERSION = 1
PLACE = "config.json"


def _evaluation(fields: Fields) -> EvaluationConfig:
    micro_batch = fields.section("batch").integer("micro_batch", 1)
    return EvaluationConfig.of(fields.section("eval"), micro_batch)


def _attempt(fields: Fields) -> AttemptConfig:
    return AttemptConfig.of(fields.find_section("attempt"))


def _environment(fields: Fields) -> EnvironmentConfig | None:
    return EnvironmentConfig.find(fields, "environment")


def _document(fields: Fields) -> Mapping[str, Any]:
    return fields.values


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig(JsonRecord):
    """Everything that is decided of a run.

    `steps` 0: not known, as of an attached training or of a program that ends by itself.
    `method_args`, `tracking` and `labels` are open: their names are a framework's or the user's.
    `document` is the JSON as read, for patches by dotted name.
    """

    run_id: str = ""
    name: str = ""
    framework: str = ""
    method: str = "pretrain"
    objective: str = CAUSAL
    model: ModelConfig
    data: DataConfig
    batch: BatchConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    evaluation: EvaluationConfig = field(metadata={"read": _evaluation})
    checkpoint: CheckpointConfig
    recovery: RecoveryConfig
    compute: ComputeConfig
    limits: LimitsConfig
    derived: DerivedConfig
    attempt: AttemptConfig = field(metadata={"read": _attempt})
    steps: int = 0
    phases: tuple[PhaseConfig, ...]
    precision: str = "fp32"
    seed: int = 1337
    pty: bool = False
    adapter: AdapterConfig | None
    environment: EnvironmentConfig | None = field(metadata={"read": _environment})
    adopt: AdoptedConfig | None
    attached: AttachedConfig | None
    script: ScriptConfig | None
    rehearsal: RehearsalConfig | None
    inputs: tuple[InputConfig, ...]
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    labels: Mapping[str, object]
    method_args: Mapping[str, Any]
    tracking: Mapping[str, Any]
    document: Mapping[str, Any] = field(repr=False, metadata={"read": _document})

    @classmethod
    def parse(cls, given: Mapping[str, Any] | bytes, place: str = PLACE) -> RunConfig:
        """The configuration of a document or of its JSON.

        Raises:
            DecodingError: a field has another type, or a value that can't be; it names the field.
        """
        document = given if isinstance(given, Mapping) else decode_value(given, place)
        if not isinstance(document, Mapping):
            raise DecodingError(place, "", "is not a JSON object")
        return cls.of(Fields(document, place))

    @property
    def is_attached(self) -> bool:
        """Whether others started the training, which is only watched."""
        return self.framework == ATTACHED

    @property
    def sha256(self) -> str:
        """The digest of what is trained; the attempt does not count."""
        kept = {key: value for key, value in self.document.items() if key != "attempt"}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
