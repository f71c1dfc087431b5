"""Planning: a spec with every `auto` decided, and what the training will take. Pure."""

from trainmaster.plan.decide import plan
from trainmaster.plan.environment import may_install, wheels_to_send
from trainmaster.plan.facts import (
    Calibration,
    CorpusFacts,
    GpuFacts,
    HostFacts,
    SourceFacts,
    Throughput,
    TorchFacts,
)
from trainmaster.plan.result import Decision, Estimates, GpuAdvice, Plan

__all__ = [
    "Calibration",
    "CorpusFacts",
    "Decision",
    "Estimates",
    "GpuAdvice",
    "GpuFacts",
    "HostFacts",
    "Plan",
    "SourceFacts",
    "Throughput",
    "TorchFacts",
    "may_install",
    "plan",
    "wheels_to_send",
]
