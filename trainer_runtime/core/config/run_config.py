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
)
from trainer_runtime.core.config.script import ScriptConfig
from trainer_runtime.core.decoding import DecodingError, Fields, decode_value
from trainer_runtime.core.protocol.lines import ATTACHED

CONFIG_VERSION = 1
PLACE = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything that is decided of a run.

    `steps` 0: not known, as of an attached training or of a program that ends by itself.
    `method_args`, `tracking` and `labels` are open: their names are a framework's or the user's.
    `document` is the JSON as read, for patches by dotted name.
    """

    run_id: str
    name: str
    framework: str
    method: str
    model: ModelConfig
    data: DataConfig
    batch: BatchConfig
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    evaluation: EvaluationConfig
    checkpoint: CheckpointConfig
    recovery: RecoveryConfig
    compute: ComputeConfig
    limits: LimitsConfig
    derived: DerivedConfig
    attempt: AttemptConfig
    steps: int
    phases: tuple[PhaseConfig, ...]
    precision: str
    seed: int
    pty: bool
    adapter: AdapterConfig | None
    environment: EnvironmentConfig | None
    adopt: AdoptedConfig | None
    attached: AttachedConfig | None
    script: ScriptConfig | None
    inputs: tuple[InputConfig, ...]
    env: Mapping[str, str]
    secrets: tuple[str, ...]
    labels: Mapping[str, object]
    method_args: Mapping[str, Any]
    tracking: Mapping[str, Any]
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, given: Mapping[str, Any] | bytes, place: str = PLACE) -> RunConfig:
        """The configuration of a document or of its JSON.

        Raises:
            DecodingError: a field has another type, or a value that can't be; it names the field.
        """
        document = given if isinstance(given, Mapping) else decode_value(given, place)
        if not isinstance(document, Mapping):
            raise DecodingError(place, "", "is not a JSON object")
        fields = Fields(document, place)
        batch = BatchConfig.of(fields.section("batch"))
        return cls(
            run_id=fields.text("run_id", ""),
            name=fields.text("name", ""),
            framework=fields.text("framework", ""),
            method=fields.text("method", "pretrain"),
            model=ModelConfig.of(fields.section("model")),
            data=DataConfig.of(fields.section("data")),
            batch=batch,
            optimizer=OptimizerConfig.of(fields.section("optimizer")),
            schedule=ScheduleConfig.of(fields.section("schedule")),
            evaluation=EvaluationConfig.of(fields.section("eval"), batch.micro_batch),
            checkpoint=CheckpointConfig.of(fields.section("checkpoint")),
            recovery=RecoveryConfig.of(fields.section("recovery")),
            compute=ComputeConfig.of(fields.section("compute")),
            limits=LimitsConfig.of(fields.section("limits")),
            derived=DerivedConfig.of(fields.section("derived")),
            attempt=AttemptConfig.of(fields.find_section("attempt")),
            steps=fields.integer("steps", 0),
            phases=tuple(map(PhaseConfig.of, fields.sections("phases"))),
            precision=fields.text("precision", "fp32"),
            seed=fields.integer("seed", 1337),
            pty=fields.flag("pty", False),
            environment=EnvironmentConfig.find(fields, "environment"),
            inputs=tuple(map(InputConfig.of, fields.sections("inputs"))),
            env=fields.text_map("env"),
            secrets=fields.texts("secrets"),
            labels=fields.open_map("labels"),
            method_args=fields.open_map("method_args"),
            tracking=fields.open_map("tracking"),
            adapter=fields.part("adapter", AdapterConfig.of),
            adopt=fields.part("adopt", AdoptedConfig.of),
            attached=fields.part("attached", AttachedConfig.of),
            script=fields.part("script", ScriptConfig.of),
            document=document,
        )

    @property
    def is_attached(self) -> bool:
        """Whether others started the training, which is only watched."""
        return self.framework == ATTACHED

    @property
    def sha256(self) -> str:
        """The digest of what is trained; the attempt does not count."""
        kept = {key: value for key, value in self.document.items() if key != "attempt"}
        return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
