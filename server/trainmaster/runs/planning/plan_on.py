"""Plans a spec for machines that are not there: nothing is probed but the files it names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from trainer_runtime.core.answers.traced import MemoryTrace
from trainer_runtime.core.protocol.command import command, option
from trainer_runtime.core.protocol.figures import gib_text, usd_text
from trainmaster.answers.runs import PlanAnswer, PlanDecision, TargetPlan
from trainmaster.backends import LOCAL
from trainmaster.backends.kaggle.client import Quota
from trainmaster.backends.kaggle.machine_types import documented
from trainmaster.calls.stages import enter_stage
from trainmaster.errors.confirmation import Confirm
from trainmaster.errors.errors import PlanError, SpecError, TrainmasterError, UsageError
from trainmaster.plan import CorpusFacts, ModelFacts, Plan, TokenizerFacts, plan
from trainmaster.plan.decisions.fit import LITTLE_ROOM
from trainmaster.plan.decisions.recipe_values import with_recipe_values
from trainmaster.plan.frameworks import method_of
from trainmaster.plan.imagined import (
    ASSUMED_ROWS,
    Destination,
    destination_of,
    destinations_with_more,
    spec_for,
    with_assumed_data,
)
from trainmaster.plan.spec import TrainingSpec, load_spec
from trainmaster.runs.planning.probe_data import probe_data
from trainmaster.runs.planning.probe_model import probe_inputs
from trainmaster.runs.planning.spec_policy import allow, beyond_policy, load_allowed_spec
from trainmaster.runs.planning.trace_memory import traced_plan
from trainmaster.runs.planning.write_plan import refuse_unwritable, write_plan
from trainmaster.settings.settings import KaggleSettings
from trainmaster.sync.workspace import Workspace

KAGGLE = "kaggle"
# Hours of GPUs that Kaggle gives a week (2026-11).
_WEEK_S = 30 * 3600.0
_OFFLOADED = ("compute.strategy=zero3_offload", "compute.activation_checkpointing=true")
_COUNTED_KAGGLE = re.compile(r"(?i:\d+\s*[x*]\s*kaggle|kaggle\s*[:*x]\s*\d*)")
_MOST_WAYS = 3
# What may make a training fit, the cheapest first; the framework's checks leave out what is not
# for it.
_WAYS = (
    "batch.micro_batch=auto",
    "compute.activation_checkpointing=auto",
    "compute.strategy=auto",
    "compute.loss=chunked",
    "compute.loss=liger",
    "adapter.quantize=nf4",
    "framework=hf",
    "framework=litgpt",
    "compute.strategy=zero3_offload",
    "adapter.r=16",
    "data.seq_len={half}",
)


@dataclass(frozen=True, slots=True)
class _Inputs:
    """A spec with what it reads. `text`: the spec as JSON; `assumed`: its data are not here."""

    spec: TrainingSpec
    text: str
    corpus: CorpusFacts
    assumed: bool
    model: ModelFacts | None
    tokenizer: TokenizerFacts | None

    def planned(
        self,
        destination: Destination,
        spec: TrainingSpec | None = None,
        trace: MemoryTrace | None = None,
    ) -> Plan:
        """Raises:
        TrainmasterError: it does not fit there, or can't use that many GPUs.
        """
        made = plan(
            spec_for(spec or self.spec, destination),
            destination.facts,
            self.corpus,
            None,
            self.model,
            self.tokenizer,
            trace,
        )
        # When it would end depends on when it begins, which nobody knows.
        timeless = made.estimates.model_copy(update={"finish_at": None})
        return made.model_copy(update={"estimates": timeless})


def destinations_of(on: str) -> list[Destination]:
    """The machines of `h100:8,kaggle`.

    Raises:
        PlanError: as `destination_of`; INVALID_VALUE, it names none, or several of Kaggle.
    """
    names = [name.strip() for name in on.split(",") if name.strip()]
    if not names:
        raise PlanError("INVALID_VALUE", "`on` names no machine.", "Name one: h100:8.", field="on")
    named = (_kaggle() if _is_kaggle(name) else destination_of(name) for name in names)
    return list({destination.on: destination for destination in named}.values())


async def plan_on(
    workspace: Workspace,
    spec: str,
    destinations: Sequence[Destination],
    *,
    sets: Sequence[str] = (),
    confirm: Confirm | None = None,
    detail: bool = True,
    write: Path | None = None,
    trace: bool = False,
) -> PlanAnswer:
    """The plan for one machine, or how several compare; for what does not fit, what would.
    `write`: a folder for the documents of the one; `trace`: its memory is that of a traced step.

    Raises:
        UsageError: `BAD_ARGUMENT`, the folder holds something, or is for several machines.
        TrainmasterError: the spec can't be used, or does not fit on the single machine.
    """
    if write is not None:
        _refuse_several("--write", destinations)
        refuse_unwritable(write)
    if trace:
        _refuse_several("--trace", destinations)
    inputs = await _read(workspace, spec, sets, confirm)
    if len(destinations) == 1:
        return await _single(inputs, destinations[0], detail=detail, write=write, trace=trace)
    return _several(inputs, destinations)


async def _read(
    workspace: Workspace, spec: str, sets: Sequence[str], confirm: Confirm | None
) -> _Inputs:
    loaded = load_allowed_spec(workspace, spec, [*sets, f"host={LOCAL}", "other_hosts=[]"])
    if loaded.script is not None:
        raise SpecError(
            "NOT_YET_SUPPORTED",
            "`framework` is script, and what a program of your own takes on another machine is "
            "known only after it has run.",
            f"Leave `on` out: {command('plan', 'SPEC')} checks it for its host.",
            field="on",
        )
    beyond = beyond_policy(workspace, loaded, has_host=False)
    await allow(workspace, beyond, "plan", loaded.name, confirm)
    backend = workspace.backend(LOCAL)
    enter_stage("reading model and tokenizer")
    model, tokenizer = await probe_inputs(workspace, loaded, backend, None, by_name=True)
    enter_stage("listing the data")
    listed = await probe_data(with_recipe_values(loaded, model), backend, tokenizer)
    corpus, assumed = with_assumed_data(loaded, listed)
    text = json.dumps(loaded.model_dump(mode="json", exclude_unset=True))
    return _Inputs(loaded, text, corpus, assumed, model, tokenizer)


def _refuse_several(name: str, destinations: Sequence[Destination]) -> None:
    if len(destinations) != 1:
        raise UsageError(
            "BAD_ARGUMENT",
            f"{option(name)} is for one plan. {option('--on')} names {len(destinations)} machines.",
            "Name one of them.",
            field=name,
        )


async def _single(
    inputs: _Inputs, destination: Destination, *, detail: bool, write: Path | None, trace: bool
) -> PlanAnswer:
    def plan_by(traced: MemoryTrace | None) -> Plan:
        return inputs.planned(destination, trace=traced)

    try:
        made = await traced_plan(plan_by) if trace else plan_by(None)
    except TrainmasterError as error:
        ways = [] if error.code == "NOT_TRACED" else _ways(inputs, destination)
        if not ways:
            raise
        fix = f"By the same plan these would do: {'; '.join(ways)}. {error.fix}"
        raise type(error)(error.code, error.message, fix, field=error.field) from None
    decisions = [
        PlanDecision(**item.model_dump())
        if detail
        else PlanDecision(field=item.field, value=item.value)
        for item in made.decisions
    ]
    warnings = [*made.warnings, *_assumptions(inputs, [destination])]
    following = _next_step(destination, made)
    if write is not None:
        following = f"{write_plan(made, destination.on, warnings, write)} {following}"
    return PlanAnswer(
        name=inputs.spec.name,
        host=destination.on,
        decisions=decisions,
        curriculum=made.curriculum,
        estimates=made.estimates.model_dump(mode="json", exclude_none=True),
        gpu=made.gpu.model_dump(mode="json"),
        warnings=warnings,
        next_step=following,
    )


def _several(inputs: _Inputs, destinations: Sequence[Destination]) -> PlanAnswer:
    rows = [_row(inputs, destination) for destination in destinations]
    fitting = [row for row in rows if row.fits]
    cheapest = min((row.usd for row in fitting if row.usd is not None), default=None)
    quickest = min((row.hours for row in fitting if row.hours is not None), default=None)
    for row in fitting:
        marks = [
            mark
            for mark, figure, best in (
                ("cheapest", row.usd, cheapest),
                ("quickest", row.hours, quickest),
            )
            if best is not None and figure == best
        ]
        row.best = ", ".join(marks) or None
    best = next((row for row in fitting if row.best), next(iter(fitting), None))
    following = (
        f"{command('plan', 'SPEC', '--on', best.on)} shows the whole plan." if best else None
    )
    return PlanAnswer(
        name=inputs.spec.name,
        targets=rows,
        warnings=_assumptions(inputs, destinations),
        next_step=following or "Change the spec as one of `would_fit` says.",
    )


def _row(inputs: _Inputs, destination: Destination) -> TargetPlan:
    try:
        made = inputs.planned(destination)
    except TrainmasterError as error:
        return TargetPlan(
            on=destination.on,
            fits=False,
            problem=error.message,
            would_fit=_ways(inputs, destination) or None,
        )
    estimates = made.estimates
    return TargetPlan(
        on=destination.on,
        fits=True,
        strategy=made.config["compute"]["strategy"],
        micro_batch=made.config["batch"]["micro_batch"],
        memory_gib=estimates.memory_gib,
        tokens_per_s=estimates.tokens_per_s,
        hours=estimates.hours,
        usd=estimates.usd,
        problem=_shortness(made),
    )


def _shortness(made: Plan) -> str | None:
    """The warning of a plan whose memory is short."""
    return next((text for text in made.warnings if text.startswith(LITTLE_ROOM)), None)


def _ways(inputs: _Inputs, destination: Destination) -> list[str]:
    """Changes with which the spec fits, each tried by planning again: of the spec, then more
    GPUs."""
    half = f"data.seq_len={with_recipe_values(inputs.spec, inputs.model).data.seq_len // 2}"
    changes = [half if way.startswith("data.seq_len") else way for way in _WAYS]
    ways = [
        f"{change} ({memory})"
        for change in changes
        if (memory := _memory(inputs, destination, [change])) is not None
    ]
    if not ways:
        has_adapter = inputs.spec.adapter is not None
        several = [["adapter.quantize=nf4", half]] if has_adapter else []
        several += [[*_OFFLOADED], [*_OFFLOADED, half]]
        each = (
            f"{' and '.join(together)} ({memory})"
            for together in several
            if (memory := _memory(inputs, destination, together)) is not None
        )
        ways = [*islice(each, 1)]
    ways = ways[: _MOST_WAYS - 1]
    for larger in destinations_with_more(destination):
        memory = _memory(inputs, larger, [])
        if memory is not None:
            return [*ways, f"on {larger.on} ({memory})"]
    return ways


def _memory(inputs: _Inputs, destination: Destination, changes: Sequence[str]) -> str | None:
    """What a GPU then holds, in words; None where it does not fit either or just about, or nothing
    changes."""
    try:
        changed = load_spec(f"{inputs.text}\n", changes)
        if changes and changed == inputs.spec:
            return None
        made = replace(inputs, spec=changed).planned(destination)
    except TrainmasterError:
        return None
    if _shortness(made) is not None:
        return None
    gib = made.estimates.memory_gib
    return "fits" if gib is None else f"{gib_text(gib)} a GPU"


def _assumptions(inputs: _Inputs, destinations: Sequence[Destination]) -> list[str]:
    said, is_text = [], method_of(inputs.spec) == "pretrain"
    if inputs.assumed:
        much = "as much text as is read once" if is_text else f"{ASSUMED_ROWS:,} rows"
        said.append(f"Assumed, as the data are not here: {much}.")
    sources = dict.fromkeys(filter(None, (place.price_source for place in destinations)))
    if sources:
        said.append(
            f"Dollars are by {'; '.join(sources)}: not an offer. {command('offers')} asks what "
            "machines cost now."
        )
    unpriced = [place.on for place in destinations if place.facts.usd_per_hour is None]
    if unpriced:
        said.append(f"No price is known here of {', '.join(unpriced)}.")
    return said


def _next_step(destination: Destination, made: Plan) -> str:
    lacking = f"{made.missing[0]} " if made.missing else ""
    if destination.on == KAGGLE:
        return f"{lacking}{command('launch', 'SPEC', '--host', KAGGLE)} trains there."
    offers = command("offers", "--gpu", destination.gpu, "--count", str(destination.gpus))
    price = destination.facts.usd_per_hour
    at = f" (planned at {usd_text(price)}/h)" if price else ""
    return (
        f"{lacking}{offers} lists machines for rent{at}, "
        f"{command('provision', 'OFFER', '--hours', 'H')} rents one, and "
        f"{command('hosts add', 'NAME', 'ADDRESS')} takes one of your own; then launch there."
    )


def _is_kaggle(name: str) -> bool:
    """Raises:
    PlanError: INVALID_VALUE, it has a number.
    """
    if name.lower() == KAGGLE:
        return True
    if _COUNTED_KAGGLE.fullmatch(name) is None:
        return False
    session = _kaggle()
    raise PlanError(
        "INVALID_VALUE",
        f"`on` is {name!r}, but a session of Kaggle takes no number: it has {session.gpus} "
        f"{session.gpu}.",
        f"Give {KAGGLE} alone, or the GPUs by their name: t4:4.",
        field="on",
    )


def _kaggle() -> Destination:
    """The documented machine of a session, with a week's whole quota."""
    quota = Quota(0.0, _WEEK_S, None)
    facts = documented(KaggleSettings(), quota, "/kaggle/temp/cache", 0.0)
    return Destination(KAGGLE, facts, facts.gpus[0].name, len(facts.gpus))
