"""The frameworks, a record each: everything that planning does differently for one of them."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.plan.fields.document import TrainingSpec
from trainmaster.plan.frameworks.framework import Framework
from trainmaster.plan.frameworks.hf import HF
from trainmaster.plan.frameworks.litgpt import LITGPT
from trainmaster.plan.frameworks.nanogpt import NANOGPT
from trainmaster.plan.frameworks.script import SCRIPT
from trainmaster.plan.frameworks.trl import TRL

__all__ = ["FRAMEWORKS", "Framework", "framework_of", "method_of"]

FRAMEWORKS: Mapping[str, Framework] = {
    record.name: record for record in (NANOGPT, LITGPT, HF, TRL, SCRIPT)
}


def framework_of(spec: TrainingSpec) -> Framework:
    """The record of a spec's framework."""
    return FRAMEWORKS[spec.framework]


def method_of(spec: TrainingSpec) -> str:
    """The method, where the spec says auto the framework's usual one."""
    return framework_of(spec).usual_method if spec.method == "auto" else spec.method
