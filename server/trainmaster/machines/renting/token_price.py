"""The price of a spec's tokens on offered machines: a plan for each, at its hourly price."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.core.protocol.figures import rounded
from trainmaster.backends import LOCAL
from trainmaster.errors.errors import PlanError, SpecError
from trainmaster.machines.clouds import Offer
from trainmaster.plan import HostFacts, Plan, plan
from trainmaster.plan.decisions.recipe_values import with_recipe_values
from trainmaster.plan.imagined import FREE_SHARE, imagined_host, with_assumed_data
from trainmaster.plan.program import plan_program
from trainmaster.plan.spec import TrainingSpec, refuse_what_is_not_built
from trainmaster.runs.planning.fetched_sources import askable
from trainmaster.runs.planning.probe_code import probe_code
from trainmaster.runs.planning.probe_data import probe_data
from trainmaster.runs.planning.probe_model import probe_inputs
from trainmaster.runs.planning.spec_policy import allow, beyond_policy, load_allowed_spec
from trainmaster.store.secret_values import HF_TOKEN, find_values
from trainmaster.sync.workspace import Workspace

_BILLION = 1e9
_HOUR_S = 3600.0


@dataclass
class Prices:
    """Prices a spec's tokens, offer by offer. `problem`: why the spec did not fit the last offer
    that it did not fit."""

    spec: TrainingSpec
    planned: Callable[[TrainingSpec, HostFacts], Plan]
    problem: str | None = field(default=None, init=False)

    def plan_on(self, offer: Offer) -> Plan:
        """The spec's plan on the offered machine, with all of its GPUs.

        Raises:
            PlanError, SpecError: it does not fit there, or can't use that many GPUs.
            SpendError: `SPEND_CAP`, it would exceed the spec's budget.
        """
        return self.planned(self._spec_on(offer), facts_of(offer))

    def usd_per_btok(self, offer: Offer) -> float | None:
        """Predicted dollars per billion tokens; None if the spec does not fit on the machine, or
        its speed can't be predicted."""
        try:
            # A token's cost does not depend on the budget.
            limits = self.spec.limits.model_copy(update={"budget_usd": None})
            unlimited = self._spec_on(offer).model_copy(update={"limits": limits})
            made = self.planned(unlimited, facts_of(offer))
        except (PlanError, SpecError) as error:  # also: it can't use that many GPUs
            self.problem = error.message
            return None
        speed = made.estimates.tokens_per_s
        if speed is None:
            return None
        return rounded(offer.usd_per_h / (speed * _HOUR_S) * _BILLION, 3)

    def _spec_on(self, offer: Offer) -> TrainingSpec:
        compute_fields = {"gpus": offer.count, "gpu": None, "gpu_memory_gib": None}
        compute = self.spec.compute.model_copy(update=compute_fields)
        return self.spec.model_copy(update={"compute": compute})


async def prices_for(workspace: Workspace, spec: str) -> Prices:
    """Probe the spec's model and data once for all offers.

    Raises:
        TrainmasterError: the spec can't be used on any machine.
    """
    loaded = load_allowed_spec(workspace, spec, [f"host={LOCAL}"])
    refuse_what_is_not_built(loaded)
    beyond = beyond_policy(workspace, loaded, has_host=False)
    await allow(workspace, beyond, "launch", loaded.name, None)
    secrets = find_values(workspace.home, loaded.secrets, os.environ)
    if loaded.script is not None:
        code, _ = await probe_code(workspace, loaded, loaded.script)
        return Prices(loaded, lambda spec_, facts: plan_program(spec_, facts, code))
    backend = workspace.backend(LOCAL)
    token = secrets.get(HF_TOKEN)
    model, tokenizer = await probe_inputs(workspace, loaded, backend, token)
    ask = askable(loaded, secrets, workspace.policy)
    listed = await probe_data(with_recipe_values(loaded, model), backend, tokenizer, ask=ask)
    corpus, _ = with_assumed_data(loaded, listed, of_host_alone=True)
    return Prices(loaded, lambda spec_, facts: plan(spec_, facts, corpus, None, model, tokenizer))


def facts_of(offer: Offer) -> HostFacts:
    """An offered machine as the planner sees it, with assumptions for what its provider omits."""
    gpu_model = find_gpu(offer.gpu, offer.gpu_memory_gib)
    gpu_gib = gpu_model.memory_gib if gpu_model is not None else offer.gpu_memory_gib or 0.0
    name = gpu_model.name if gpu_model is not None else offer.gpu
    usual = imagined_host(offer.name, name, offer.count, gpu_gib)
    stated = {
        "cores": offer.cpu_cores,
        "memory_total_gib": offer.memory_gib,
        "memory_available_gib": (offer.memory_gib or 0.0) * FREE_SHARE,
        "disk_free_gib": offer.disk_gib,
        "usd_per_hour": offer.usd_per_h,
        "measured_at": offer.priced_t,
    }
    return usual.model_copy(update={name: value for name, value in stated.items() if value})
