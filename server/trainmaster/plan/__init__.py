"""Planning: decides every `auto` of a spec and estimates the training. Pure."""

from trainmaster.plan.corpus_facts import CorpusFacts, SourceFacts
from trainmaster.plan.decide import plan
from trainmaster.plan.decisions.environment import may_install, wheels_to_send
from trainmaster.plan.decisions.method import form_of
from trainmaster.plan.decisions.tokenizer import chosen_tokenizer
from trainmaster.plan.facts import (
    Calibration,
    CodeFacts,
    GpuFacts,
    HostFacts,
    ModelFacts,
    Throughput,
    TokenizerFacts,
    TorchFacts,
)
from trainmaster.plan.program import plan_program
from trainmaster.plan.result import Decision, Estimates, GpuAdvice, Plan

__all__ = [
    "Calibration",
    "CodeFacts",
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
    "plan_program",
    "wheels_to_send",
]
