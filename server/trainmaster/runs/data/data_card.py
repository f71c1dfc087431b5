"""The data card of a run, as its host wrote it at the end of the preparation."""

from __future__ import annotations

from contextlib import suppress

from trainer_runtime.core.decoding import decode_fields
from trainer_runtime.core.files.listing import ListedFile
from trainer_runtime.core.inputs.data_card import DATA_CARD, DataCard
from trainer_runtime.core.protocol.followed_files import LARGEST_WHOLE_BYTES
from trainmaster.answers.data_card import DataCardAnswer
from trainmaster.errors.errors import HostError, StateError
from trainmaster.runs.metrics.phase_table import phase_table
from trainmaster.sync.refresh import refresh
from trainmaster.sync.run_view import RunView
from trainmaster.sync.workspace import Workspace
from trainmaster.transfers.file_sources import FileSource, HostFiles, MirroredFiles


async def data_card(workspace: Workspace, run: str) -> DataCardAnswer:
    """What a run was trained on, with the mix that its phases have drawn.

    Raises:
        StateError: `RUN_NOT_FOUND`; `NO_DATA_CARD`, its data is not prepared yet, or it has none.
    """
    view = await refresh(workspace, run)
    mirror: FileSource = MirroredFiles(
        workspace.mirror.of(view.run.run_id, view.run.placement).root
    )
    content = await _read(mirror)
    if content is None and not view.run.config.secrets:  # whose values the mirror's copy masks
        with suppress(HostError):
            content = await _read(HostFiles(workspace.backend(view.run.host), view.run.run_id))
    if content is None:
        raise _none_of(view)
    try:
        card = decode_fields(content, DATA_CARD, max_bytes=LARGEST_WHOLE_BYTES)
        described = DataCard.of(card).to_dict()
    except ValueError:
        raise _none_of(view) from None
    return DataCardAnswer(
        run_id=view.run.run_id, card=described, realised=_realised(workspace, view)
    )


async def _read(files: FileSource) -> bytes | None:
    listed = [one for one in await files.files(DATA_CARD) if isinstance(one, ListedFile)]
    if not listed or listed[0].size_bytes > LARGEST_WHOLE_BYTES:
        return None
    content = b""
    while data := await files.read(DATA_CARD, len(content), LARGEST_WHOLE_BYTES):
        content += data
        if len(content) > LARGEST_WHOLE_BYTES:
            return None
    return content


def _none_of(view: RunView) -> StateError:
    return StateError(
        "NO_DATA_CARD",
        f"Run {view.run.run_id} has no data card that could be read.",
        "It is written when the data is prepared; programs of one's own and attached trainings "
        "have none.",
    )


def _realised(workspace: Workspace, view: RunView) -> dict[str, dict[str, float]] | None:
    table = phase_table(workspace, view)
    if table is None or not table.mix:
        return None
    mixes = {
        name: {
            source: share
            for source, shares in table.mix.items()
            if (share := shares[at]) is not None
        }
        for at, name in enumerate(table.phase)
    }
    return {name: mix for name, mix in mixes.items() if mix} or None
