"""The resolved `config.json` of a run as host and client read it: complete and typed.

`RunConfig.parse` reads it once. Unknown fields are ignored, so an older runtime can read a newer
config of the same version. Missing fields take their defaults; callers that require more check it
themselves (`train/attempt/config.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer_runtime.core.config.data import (
    DataConfig,
    FilterConfig,
    InputConfig,
    Skip,
    SourceConfig,
    UploadConfig,
)
from trainer_runtime.core.config.environment import EnvironmentConfig
from trainer_runtime.core.config.foreign import AdoptedConfig, AttachedConfig, PaneConfig
from trainer_runtime.core.config.model import AdapterConfig, ModelConfig
from trainer_runtime.core.config.optimization import (
    BatchConfig,
    DerivedConfig,
    EvaluationConfig,
    OptimizerConfig,
    SamplesConfig,
    ScheduleConfig,
)
from trainer_runtime.core.config.run_config import CONFIG_VERSION, PLACE, RunConfig
from trainer_runtime.core.config.running import (
    AttemptConfig,
    CheckpointConfig,
    ComputeConfig,
    LimitsConfig,
    RecoveryConfig,
    ResumeConfig,
)
from trainer_runtime.core.config.script import SavesConfig, ScriptConfig

# The configuration as JSON: what patches by dotted name are applied to.
ConfigDocument = Mapping[str, Any]
# New values by dotted name: of any type that the configuration has.
ConfigChanges = Mapping[str, Any]

__all__ = [
    "CONFIG_VERSION",
    "PLACE",
    "AdapterConfig",
    "AdoptedConfig",
    "AttachedConfig",
    "AttemptConfig",
    "BatchConfig",
    "CheckpointConfig",
    "ComputeConfig",
    "ConfigChanges",
    "ConfigDocument",
    "DataConfig",
    "DerivedConfig",
    "EnvironmentConfig",
    "EvaluationConfig",
    "FilterConfig",
    "InputConfig",
    "LimitsConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PaneConfig",
    "RecoveryConfig",
    "ResumeConfig",
    "RunConfig",
    "SamplesConfig",
    "SavesConfig",
    "ScheduleConfig",
    "ScriptConfig",
    "Skip",
    "SourceConfig",
    "UploadConfig",
]
