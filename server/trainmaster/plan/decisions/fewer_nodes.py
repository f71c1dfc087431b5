"""Whether a training may continue on fewer hosts than it begins with."""

from __future__ import annotations

from trainer_runtime.core.processes.fewer_nodes import (
    Step,
    compares_examples,
    possible_counts,
)
from trainer_runtime.core.processes.resharding import why_ranks_are_fixed
from trainmaster.errors.errors import PlanError
from trainmaster.plan.decisions.fit import Fitted
from trainmaster.plan.decisions.target import Target
from trainmaster.plan.frameworks import method_of
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_FIELD = "compute.min_nodes"


def check_min_nodes(spec: TrainingSpec, target: Target, fitted: Fitted, ledger: Ledger) -> None:
    """Decide with how many hosts the training may continue.

    Raises:
        PlanError: INVALID_VALUE, so many hosts can't share a step evenly, or there are fewer.
    """
    least = spec.compute.min_nodes
    if least is None:
        return
    if target.nodes == 1:
        what = f"is {least}, but the training has one host."
        raise _wrong(what, "Set it to null, or list several machines in `host`: [gpu1, gpu2].")
    if least > target.nodes:
        what = f"is {least}, but the training has {target.nodes} hosts."
        raise _wrong(what, "Set it to null, or lower.")
    if not spec.other_hosts:
        what = "is given, but the cluster gives all nodes of a job or none."
        raise _wrong(what, "Set it to null.")
    strategy = fitted.sharing.strategy
    is_quantized = spec.adapter is not None and spec.adapter.quantize is not None
    if why_ranks_are_fixed(strategy, spec.optimizer.name, is_quantized=is_quantized):
        what = f"is given, but under {strategy} only as many ranks can resume."
        raise _wrong(what, "Set compute.strategy to ddp, or compute.min_nodes to null.")
    batch = fitted.batch
    is_fixed = compares_examples(method_of(spec))
    step = Step(batch.sequences, batch.micro_batch, target.node_processes, is_fixed)
    counts = possible_counts(step, 1, target.nodes)
    if least not in counts:
        named = ", ".join(map(str, counts))
        raise _wrong(
            f"is {least}, but {least * step.node_ranks} ranks can't share the {step.sequences} "
            "sequences of a step evenly.",
            f"Set it to one of: {named}; or choose other batch.tokens.",
        )
    possible = " or ".join(map(str, [count for count in counts if count >= least]))
    reason = f"A step of {step.sequences} sequences can be shared by {possible} hosts."
    ledger.decide(_FIELD, least, reason)


def _wrong(what: str, fix: str) -> PlanError:
    return PlanError("INVALID_VALUE", f"`{_FIELD}` {what}", fix, field=_FIELD)
