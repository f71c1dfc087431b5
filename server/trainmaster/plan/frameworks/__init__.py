"""The frameworks, a record each: everything that planning does differently for one of them.

The names, and what a host does differently: `trainer_runtime.core.frameworks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import get_args

from trainer_runtime.core.frameworks import FrameworkName
from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.frameworks.framework import Framework

__all__ = ["FRAMEWORKS", "Framework", "framework_of", "method_of"]

FRAMEWORKS: Mapping[str, Framework] = {
    name: import_module(f"{__name__}.{name}").FRAMEWORK for name in get_args(FrameworkName)
}


def framework_of(spec: TrainingSpec) -> Framework:
    """The record of a spec's framework."""
    return FRAMEWORKS[spec.framework]


def method_of(spec: TrainingSpec) -> str:
    """The method, where the spec says auto the framework's usual one."""
    return framework_of(spec).usual_method if spec.method == "auto" else spec.method
