"""The price of a spec's tokens on offered machines: a plan for each, at its hourly price."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from trainer_runtime.core.environment.gpus import find_gpu
from trainer_runtime.core.files.corpus import ON_BOX
from trainer_runtime.core.protocol.figures import rounded
from trainmaster.backends import LOCAL
from trainmaster.errors.errors import PlanError, SpecError
from trainmaster.machines.clouds import Offer
from trainmaster.plan import CorpusFacts, GpuFacts, HostFacts, Plan, SourceFacts, plan
from trainmaster.plan.spec import TrainingSpec, refuse_what_is_not_built
from trainmaster.runs.planning.probe_data import probe_data
from trainmaster.runs.planning.probe_model import probe_inputs
from trainmaster.runs.planning.spec_policy import allow, beyond_policy, load_allowed_spec
from trainmaster.store.secret_values import HF_TOKEN, find_values
from trainmaster.sync.workspace import Workspace

# For offers that don't state them: usual sizes per GPU.
_CORES_PER_GPU = 8.0
_MEMORY_PER_GPU_GIB = 64.0
_PLENTY_GIB = 16384.0
_FREE_SHARE = 0.95
_ROOT = "/root/.trainmaster"
# For data on an instance that doesn't exist yet: enough for any length, small for any disk.
_ASSUMED_BYTES, _ASSUMED_TOKENS, _ASSUMED_EXAMPLES = 1 << 30, 1 << 28, 1 << 20
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
    backend = workspace.backend(LOCAL)
    model, tokenizer = await probe_inputs(workspace, loaded, backend, secrets.get(HF_TOKEN))
    corpus = _assume_remote_data(await probe_data(loaded, backend, tokenizer))
    return Prices(loaded, lambda spec_, facts: plan(spec_, facts, corpus, None, model, tokenizer))


def facts_of(offer: Offer) -> HostFacts:
    """An offered machine as the planner sees it, with assumptions for what its provider omits."""
    gpu_model = find_gpu(offer.gpu, offer.gpu_memory_gib)
    gpu_gib = gpu_model.memory_gib if gpu_model is not None else offer.gpu_memory_gib or 0.0
    memory_gib = offer.memory_gib or _MEMORY_PER_GPU_GIB * offer.count
    return HostFacts(
        hostname=offer.name,
        root=_ROOT,
        cores=offer.cpu_cores or _CORES_PER_GPU * offer.count,
        memory_total_gib=memory_gib,
        memory_available_gib=memory_gib * _FREE_SHARE,
        disk_free_gib=offer.disk_gib or _PLENTY_GIB,
        gpus=tuple(
            GpuFacts(
                index=index,
                name=gpu_model.name if gpu_model is not None else offer.gpu,
                memory_gib=gpu_gib,
                memory_free_gib=gpu_gib,
            )
            for index in range(offer.count)
        ),
        python_path="python3",
        python_version="3.11",
        venv_available=True,
        c_compiler=True,
        usd_per_hour=offer.usd_per_h,
        measured_at=offer.priced_t,
    )


def _assume_remote_data(corpus: CorpusFacts) -> CorpusFacts:
    sources = tuple(
        SourceFacts(
            name=source.name,
            path=source.path,
            format=source.format,
            files=1,
            size_bytes=_ASSUMED_BYTES,
            tokens=_ASSUMED_TOKENS,
            examples=_ASSUMED_EXAMPLES,
        )
        if source.path.startswith(ON_BOX)
        else source
        for source in corpus.sources
    )
    return corpus.model_copy(update={"sources": sources})
