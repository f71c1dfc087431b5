"""Says what validation is made on."""

from __future__ import annotations

from trainer_runtime.core.files.corpus import ROWS, STREAM, VALIDATION_SHARE
from trainmaster.plan.corpus_facts import CorpusFacts
from trainmaster.plan.decisions.method import Form
from trainmaster.plan.result import Ledger

_HELD_OUT = {
    ROWS: "Every twentieth row of each source, or the validation or test that a saved data set "
    "brings; data.validation names files of your own.",
    STREAM: "Every twentieth sequence of each source; data.validation names files of your own.",
}
_ENDS = "The end of each source; data.validation names files of your own."


def decide_validation(corpus: CorpusFacts, form: Form, ledger: Ledger) -> None:
    """Record where validation comes from; warn of validation tokens that are not read."""
    validation, brought = (
        corpus.validation,
        [
            trained_source.name
            for trained_source in corpus.training
            if trained_source.own_validation
        ],
    )
    if validation:
        names = ", ".join(source.name for source in validation)
        reason = "Your own files; the sources are trained on as a whole."
        if brought:
            reason = "Your own files; those named as validation among the sources are left out."
        ledger.decide("data.validation", names, reason)
    elif brought:
        names = ", ".join(brought)
        reason = "The files named as validation there (val.bin), which are never trained on."
        ledger.decide("data.validation", names, reason)
    else:
        ledger.decide("data.validation", f"{VALIDATION_SHARE:.0%}", _HELD_OUT.get(form, _ENDS))
    for source in corpus.training:
        if source.beside is not None and not validation:
            ledger.warn(
                f"{source.beside} lies beside {source.path} and is not read, since the file was "
                "given alone: give the folder, or name it by data.validation."
            )
