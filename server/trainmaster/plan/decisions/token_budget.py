"""Decides `tokens: auto`: as much text as new weights of a size learn best from.

A model with experts counts by the parameters that a token passes: laws of mixtures go by these
(Krajewski et al. 2024, arXiv 2402.07871; Ludziejewski et al. 2025, arXiv 2502.05172), and
Hoffmann's is of dense models.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainer_runtime.core.files.corpus import VALIDATION_SHARE
from trainer_runtime.core.protocol.duration import parse_duration
from trainer_runtime.core.protocol.figures import usd_text
from trainmaster.errors.errors import PlanError
from trainmaster.plan.corpus_facts import CorpusFacts
from trainmaster.plan.decisions.corpus_checks import HARMLESS_PASSES
from trainmaster.plan.decisions.estimate import HOUR_S
from trainmaster.plan.decisions.length import tokens_text
from trainmaster.plan.decisions.model import Network
from trainmaster.plan.decisions.recipe_values import FEWEST_STEPS, SMALLEST_STEP
from trainmaster.plan.decisions.recipes import WITH_EXPERTS
from trainmaster.plan.decisions.throughput import Throughput
from trainmaster.plan.facts import HostFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_TOKENS_PER_PARAMETER = 20
_SOURCE = "Hoffmann et al. 2022 (arXiv 2203.15556), table 3"
_PASSES_SOURCE = "Muennighoff et al. 2023 (arXiv 2305.16264)"
_EXPERTS_SOURCE = "Krajewski et al. 2024 (arXiv 2402.07871)"
_ALL = "parameters"
_Bound = tuple[int, str, str | None]


def with_tokens(
    spec: TrainingSpec,
    network: Network,
    corpus: CorpusFacts,
    speed: Throughput | None,
    facts: HostFacts,
    ledger: Ledger,
) -> TrainingSpec:
    """The spec with a number of tokens: 20 a parameter that a token passes, or fewer where the data
    would be read more than four times, or the budget or the time of `limits` ends before.

    Raises:
        PlanError: INVALID_VALUE, the number of parameters is not known, or the limits end the run
            within a step.
    """
    if spec.tokens != "auto":
        return spec
    parameters, kind = _passed(network)
    if parameters is None:
        raise PlanError(
            "INVALID_VALUE",
            "`tokens` is auto, which goes by the number of parameters, and that is not known here.",
            "Give tokens as a number.",
            field="tokens",
        )
    wanted = _TOKENS_PER_PARAMETER * parameters
    optimal = f"{_TOKENS_PER_PARAMETER} for each of {parameters:,} {kind}"
    source = _SOURCE if kind == _ALL else f"{_SOURCE}; {_EXPERTS_SOURCE}"
    bounds = [(wanted, f"{optimal}.", source), *_bounds(spec, corpus, speed, facts, ledger)]
    tokens, reason, by = min(bounds, key=lambda bound: bound[0])
    if tokens < spec.batch.tokens:
        in_sentence = f"{reason[0].lower()}{reason[1:].rstrip('.')}"
        raise PlanError(
            "INVALID_VALUE",
            f"`tokens` is auto, but {in_sentence} is {tokens:,}, less than one step of "
            f"{spec.batch.tokens:,} tokens.",
            "Allow more, give more text, or set a smaller batch.tokens.",
            field="tokens",
        )
    if tokens < wanted:
        reason += f" Best would be {tokens_text(wanted)}: {optimal} ({source})."
    ledger.decide("tokens", tokens, reason, by)
    steps, fitting = tokens // spec.batch.tokens, max(SMALLEST_STEP, tokens // FEWEST_STEPS)
    if steps < FEWEST_STEPS and spec.batch.tokens > SMALLEST_STEP:
        ledger.warn(
            f"tokens is auto, which gives {steps:,} steps of {spec.batch.tokens:,} tokens; "
            f"trainings have {FEWEST_STEPS:,} at least. Set batch.tokens to about "
            f"{fitting - fitting % spec.data.seq_len}, or take a smaller model."
        )
    return spec.model_copy(update={"tokens": tokens})


def _passed(network: Network) -> tuple[int | None, str]:
    """The parameters that a token passes, and what they are called."""
    count, model = network.parameters_by_size, network.architecture
    if count is None or model is None or model.experts is None:
        return count, _ALL
    active = count - model.experts.idle_parameters(model.d_model)
    return (active, "active parameters") if active < WITH_EXPERTS * count else (count, _ALL)


def _bounds(
    spec: TrainingSpec,
    corpus: CorpusFacts,
    speed: Throughput | None,
    facts: HostFacts,
    ledger: Ledger,
) -> Iterator[_Bound]:
    if corpus.tokens:
        share = 1.0 if corpus.validation else 1 - VALIDATION_SHARE
        most = round(HARMLESS_PASSES * share * corpus.tokens)
        yield most, f"What the corpus holds, {HARMLESS_PASSES} times.", _PASSES_SOURCE
    budget_usd, runtime = spec.limits.budget_usd, spec.limits.max_runtime
    is_limited = runtime != "auto" or (budget_usd is not None and bool(facts.usd_per_hour))
    if speed is None:
        if is_limited:
            ledger.warn("How fast it trains is not known here: tokens does not go by `limits`.")
        return
    if runtime != "auto":
        seconds = parse_duration(runtime)
        yield int(seconds * speed.low), f"What limits.max_runtime {runtime} lasts for.", None
    if budget_usd is not None and facts.usd_per_hour:
        seconds = budget_usd / facts.usd_per_hour * HOUR_S
        reason = f"What {usd_text(budget_usd)} buys at {usd_text(facts.usd_per_hour)}/h."
        yield int(seconds * speed.low), reason, None
