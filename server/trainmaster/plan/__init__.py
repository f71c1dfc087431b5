"""Planning: a spec with every `auto` decided, and what the training will take. Pure."""

from trainmaster.plan.decide import plan
from trainmaster.plan.environment import may_install, wheels_to_send
from trainmaster.plan.facts import (
    Calibration,
    CorpusFacts,
    GpuFacts,
    HostFacts,
    ModelFacts,
    SourceFacts,
    Throughput,
    TokenizerFacts,
    TorchFacts,
)
from trainmaster.plan.method import form_of, resolved_method
from trainmaster.plan.result import Decision, Estimates, GpuAdvice, Plan
from trainmaster.plan.tokenizer import chosen_tokenizer

__all__ = [
    "Calibration",
    "CorpusFacts",
    "Decision",
    "Estimates",
    "GpuAdvice",
    "GpuFacts",
    "HostFacts",
    "ModelFacts",
    "Plan",
    "SourceFacts",
    "Throughput",
    "TokenizerFacts",
    "TorchFacts",
    "chosen_tokenizer",
    "form_of",
    "may_install",
    "plan",
    "resolved_method",
    "wheels_to_send",
]
