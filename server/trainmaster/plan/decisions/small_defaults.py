"""Warns where defaults that suit a first, small training are left as they are for a large model."""

from __future__ import annotations

from trainer_runtime.core.protocol.figures import number_text
from trainmaster.plan.result import Ledger
from trainmaster.plan.spec import TrainingSpec

# From here on a training takes hours on the GPUs it needs.
_LARGE = 50_000_000
_USUAL_SEQ_LEN = 1024
_USUAL_STEP_TOKENS = 500_000
# GPT-2's context; GPT-3's batch up to 760M parameters.
_SOURCE = "Radford et al. 2019; Brown et al. 2020, table 2.1"


def warn_of_small_defaults(spec: TrainingSpec, parameters: int | None, ledger: Ledger) -> None:
    """Warn of a length of sequences or a batch that nobody chose for a large model."""
    if parameters is None or parameters < _LARGE:
        return
    fields = {
        "data.seq_len": (spec.data, "seq_len", _USUAL_SEQ_LEN),
        "batch.tokens": (spec.batch, "tokens", _USUAL_STEP_TOKENS),
    }
    left = [
        f"{name} {getattr(section, field):,} (usual: {usual:,})"
        for name, (section, field, usual) in fields.items()
        if field not in section.model_fields_set and getattr(section, field) < usual
    ]
    if left:
        ledger.warn(
            f"Defaults for a first training are used with "
            f"{number_text(round(parameters / 1e6))}M parameters: "
            f"{', '.join(left)}. Set what this model is to be trained with ({_SOURCE})."
        )
