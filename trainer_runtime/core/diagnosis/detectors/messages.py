"""The text of findings from series: what the detectors declare, filled with their own figures."""

from __future__ import annotations

from collections.abc import Mapping

from trainer_runtime.core.diagnosis.detectors.detector import Code
from trainer_runtime.core.diagnosis.detectors.detector_set import CODES as OF_DETECTORS
from trainer_runtime.core.diagnosis.detectors.ledger import Value
from trainer_runtime.core.protocol.figures import number_text


def explanation(code: str, values: Mapping[str, Value]) -> str:
    if _has_spiked(code, values):
        return _SPIKED.format_map(values)
    if code == "nan_grad" and "key" in values:
        if values["key"] == "loss":
            return _ZEROS
        if "loss_at_onset" not in values:
            return _NO_LOSS
    cause = CAUSES.get(str(values.get("cause")), "")
    return f"{CODES[code].explanation} {cause}".strip()


def advice(code: str, values: Mapping[str, Value]) -> tuple[str, ...]:
    if code in ("nan_loss", "nan_grad") and "key" in values and "last_finite_step" not in values:
        return _FROM_THE_FIRST_ADVICE
    return _SPIKED_ADVICE if _has_spiked(code, values) else CODES[code].advice


def _has_spiked(code: str, values: Mapping[str, Value]) -> bool:
    return code == "grad_norm_rising" and values.get("spike_step") is not None


def sentences(code: str) -> tuple[str, ...]:
    """All templates of sentences that `explanation` and `advice` may use for a code."""
    if code not in CODES:
        return ()
    message = CODES[code]
    others = (_SPIKED, *_SPIKED_ADVICE, _ZEROS, _NO_LOSS, *_FROM_THE_FIRST_ADVICE)
    return (message.explanation, *CAUSES.values(), *message.advice, *others)


def evidence(code: str, values: Mapping[str, Value]) -> tuple[str, ...]:
    figures = {name: _format(value) for name, value in values.items() if value not in (None, [])}
    lines = []
    for template in CODES[code].evidence:
        try:
            lines.append(template.format_map(figures))
        except KeyError:
            continue
    return tuple(lines)


def _format(value: Value) -> str:
    if isinstance(value, list):
        return " ".join(_format(item) for item in value)
    return number_text(value) if isinstance(value, float) else str(value)


_SPIKED = (
    "The gradient norm rose far above its usual level; the loss spike at step {spike_step} is part "
    "of the same event."
)
_SPIKED_ADVICE = ("Follow the advice of the loss spike's finding.",)
_ZEROS = (
    "The loss is exactly 0 at every point after one that was not small: HF Trainer's filter prints "
    "0 for a loss that is NaN."
)
_NO_LOSS = (
    "The gradient is NaN or infinite, and the log has no loss for that step, or 0: Megatron leaves "
    "out a loss that is NaN, and HF Trainer's filter prints 0 for it."
)
_FROM_THE_FIRST_ADVICE = (
    "No finite loss came before it in what was read. If the training began here, there is nothing "
    "to return to: try bf16 or fp32 in the place of fp16, and check that a batch has labels that "
    "are not masked, that the base weights are finite, and the learning rate.",
    "If it was resumed here, its checkpoint holds NaN already: use an earlier one.",
)

CAUSES: Mapping[str, str] = {
    "data_loading": "It waits for data: use more loader workers or prepare the data beforehand.",
    "communication": "It waits for other ranks: check the slowest rank and the network.",
    "network": "The network is busy with streamed data or other ranks' gradients.",
    "thermal": "It is hot: insufficient cooling or neighbouring load reduces its clock.",
    "power": "Its power limit reduces its clock.",
    "zero_loss": "The loss is 0 from the first point on: usually all labels are masked (-100), or "
    "the answers were cut off.",
    "zero_loss_and_gradient": "Loss and gradient norm are 0: usually all labels are masked (-100), "
    "or answers were cut off by the longest length.",
    "zero_loss_and_rate": "Loss and learning rate are 0: the optimizer is not stepped, or its "
    "steps are skipped since every gradient overflows; a loss of NaN can be printed as 0.",
    "zero_gradient": "The gradient norm is 0: no parameter is trained (all are frozen, the adapter "
    "is not attached, or the graph is cut by gradient checkpointing).",
    "zero_rate": "The learning rate is 0: its schedule has ended or was built for other steps, or "
    "the optimizer is not stepped.",
    "same_loss": "The loss is the same number at every point: no parameter is trained, or the "
    "program logs one batch or an old value.",
    "host": "The host feeds it too slowly: small kernels, Python overhead or a busy CPU.",
}

CODES: Mapping[str, Code] = {
    **OF_DETECTORS,
    "waits_for_service": Code(
        "The log ends in one message of retrying over and over: it waits for a service that does "
        "not answer.",
        ("{times} times at the end: {line}",),
        (
            "Check that the service runs, and that its address and port are those that it is "
            "asked at: its own log says why it is not up.",
        ),
    ),
}
