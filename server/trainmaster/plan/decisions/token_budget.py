"""Decides `tokens: auto`: as much text as new weights of a size learn best from."""

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
from trainmaster.plan.decisions.throughput import Throughput
from trainmaster.plan.facts import HostFacts
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

_TOKENS_PER_PARAMETER = 20
_SOURCE = "Hoffmann et al. 2022 (arXiv 2203.15556), table 3"
_PASSES_SOURCE = "Muennighoff et al. 2023 (arXiv 2305.16264)"
_Bound = tuple[int, str, str | None]


def with_tokens(
    spec: TrainingSpec,
    parameters: int | None,
    corpus: CorpusFacts,
    speed: Throughput | None,
    facts: HostFacts,
    ledger: Ledger,
) -> TrainingSpec:
    """The spec with a number of tokens: 20 a parameter, or fewer where the data would be read more
    than four times, or the budget or the time of `limits` ends before.

    Raises:
        PlanError: INVALID_VALUE, the number of parameters is not known, or the limits end the run
            within a step.
    """
    if spec.tokens != "auto":
        return spec
    if parameters is None:
        raise PlanError(
            "INVALID_VALUE",
            "`tokens` is auto, which goes by the number of parameters, and that is not known here.",
            "Give tokens as a number.",
            field="tokens",
        )
    wanted = _TOKENS_PER_PARAMETER * parameters
    optimal = f"{_TOKENS_PER_PARAMETER} for each of {parameters:,} parameters"
    bounds = [(wanted, f"{optimal}.", _SOURCE), *_bounds(spec, corpus, speed, facts, ledger)]
    tokens, reason, source = min(bounds, key=lambda bound: bound[0])
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
        reason += f" Best would be {tokens_text(wanted)}: {optimal} ({_SOURCE})."
    ledger.decide("tokens", tokens, reason, source)
    return spec.model_copy(update={"tokens": tokens})


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
