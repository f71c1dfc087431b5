"""A resume on another number of ranks: the same sequences in each step, in other pieces."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_runtime.core.config import ConfigDocument, RunConfig
from trainer_runtime.core.diagnosis.remedies import value_at
from trainer_runtime.core.processes.fewer_nodes import compares_examples
from trainer_runtime.core.processes.resharding import (
    strategies_alike,
    strategy_on,
    why_ranks_of,
)
from trainer_runtime.core.protocol.command import option
from trainmaster.errors.errors import SpecError
from trainmaster.plan.fields.field_tree import keeping

_TOKENS, _MICRO_BATCH = "batch.tokens", "batch.micro_batch"
_STRATEGY = "compute.strategy"
# The host may have written any numbers: bounds of what is searched.
_MOST_RANKS, _MOST_PIECES = 4096, 1 << 16
_LAUNCH = "Launch a new run with it."


def sets_of_batch(
    asked: Sequence[str],
    newest: ConfigDocument,
    planned: ConfigDocument,
    lends_time: str | None = None,
) -> list[str]:
    """The `--set` items that keep the batch of the `newest` attempt where `asked` changes the
    number of ranks, and a strategy that can read its checkpoints; none where it doesn't.

    A step keeps its sequences: each rank takes its share of them, in micro-batches of at most the
    size that was found to fit. `planned`: the configuration with what is `asked`; `lends_time`: the
    run's host, where its sessions are requested as they were planned.

    Raises:
        SpecError: `INVALID_VALUE`, the ranks can't share a step evenly, or this run's can't change.
    """
    names = [item.partition("=")[0].strip() for item in asked]
    field = next((name for name in names if name in keeping("batch")), None)
    if field is None:
        return []
    ranks, before = _ranks(planned), _ranks(newest)
    _refuse_another_device(newest, planned, field)
    if ranks == before:
        return []
    _refuse_where_fixed(RunConfig.parse(newest), RunConfig.parse(planned), field, lends_time)
    if newest.get("framework") == "script":  # its arguments decide about the batch
        return []
    strategy = _strategy_kept(newest, planned, _STRATEGY in names)
    if _TOKENS in names:  # another batch is wanted, whatever the number of ranks
        return strategy
    sequences = _pieces(newest) * _number(newest, "batch.accumulation") * before
    wanted = _pieces(planned) if _MICRO_BATCH in names else None
    pieces = _fitting_pieces(newest, sequences, ranks, wanted)
    if pieces is None:
        raise _uneven(newest, planned, sequences, field, wanted)
    kept = [*strategy, f"{_TOKENS}={sequences * _number(planned, 'data.seq_len')}"]
    return kept if wanted else [*kept, f"{_MICRO_BATCH}={pieces}"]


def _ranks(config: ConfigDocument) -> int:
    return _number(config, "compute.processes")


def _pieces(config: ConfigDocument) -> int:
    return _number(config, _MICRO_BATCH)


def _number(config: ConfigDocument, path: str) -> int:
    """One where the host has written no number."""
    value = value_at(config, path)
    return value if type(value) is int and value > 0 else 1


def _fitting_pieces(
    newest: ConfigDocument, sequences: int, ranks: int, wanted: int | None
) -> int | None:
    """The micro-batch by which so many ranks take a step in whole micro-batches."""
    if sequences % ranks:
        return None
    share, most = sequences // ranks, wanted or _pieces(newest)
    if wanted or compares_examples(str(newest.get("method"))):
        return None if share % most else most
    return max(size for size in range(1, min(most, _MOST_PIECES) + 1) if share % size == 0)


def _uneven(
    newest: ConfigDocument,
    planned: ConfigDocument,
    sequences: int,
    field: str,
    wanted: int | None,
) -> SpecError:
    nodes = _number(planned, "compute.nodes")
    possible = [
        ranks // nodes
        for ranks in range(nodes, min(sequences, _MOST_RANKS) + 1, nodes)
        if _fitting_pieces(newest, sequences, ranks, wanted)
    ]
    counts = ", ".join(map(str, possible)) or "none"
    each = f" on each of {nodes} hosts" if nodes > 1 else ""
    pieces = f" in micro-batches of {wanted}" if wanted else ""
    return SpecError(
        "INVALID_VALUE",
        f"A step has {sequences} sequences, which {_ranks(planned)} ranks can't share "
        f"evenly{pieces}.",
        f"Set `{field}` to one of: {counts}{each}; or ask for another batch by "
        f"{option('--set', 'batch.tokens=…')}.",
        field=field,
    )


def _refuse_another_device(newest: ConfigDocument, planned: ConfigDocument, field: str) -> None:
    devices = [value_at(config, "compute.device") for config in (newest, planned)]
    if devices[0] != devices[1]:
        raise _fixed(
            field,
            f"would have a run on {devices[0]} continue on {devices[1]}",
            _LAUNCH,
        )


def _refuse_where_fixed(
    newest: RunConfig, planned: RunConfig, field: str, lends_time: str | None
) -> None:
    if lends_time is not None:
        what = f"can't change on {lends_time}, whose sessions are requested as planned"
        raise _fixed(field, what, _LAUNCH)
    if planned.script is not None and not planned.script.elastic:
        what = "is what the program was started with, and its checkpoints may fit no other"
        fix = (
            f"Add {option('--set', 'script.elastic=true')} if they fit any; else launch a new run."
        )
        raise _fixed(field, what, fix)
    if reason := why_ranks_of(newest):
        raise _fixed(field, reason, "Leave it as it was, or launch a new run.")


def _strategy_kept(newest: ConfigDocument, planned: ConfigDocument, is_asked: bool) -> list[str]:
    """Another number of ranks may be planned with a strategy that reads none of the checkpoints."""
    before, after = (str(value_at(config, _STRATEGY)) for config in (newest, planned))
    if after in strategies_alike(str(newest.get("framework")), before):
        return []
    if is_asked:
        what = f"is {after}, which can't resume what {before} has saved"
        raise _fixed(_STRATEGY, what, "Leave it out, or launch a new run.")
    return [f"{_STRATEGY}={strategy_on(before, _ranks(planned))}"]


def _fixed(field: str, what: str, fix: str) -> SpecError:
    return SpecError("INVALID_VALUE", f"`{field}` {what}.", fix, field=field)
