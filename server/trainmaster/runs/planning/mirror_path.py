"""A second place for checkpoints on the box, `checkpoint.mirror: host:/path`: tried before it is
needed."""

from __future__ import annotations

from trainer_runtime.core.files.corpus import ON_BOX
from trainmaster.backends import Backend
from trainmaster.words.errors import HostError

_AWAY = frozenset({"HOST_UNREACHABLE", "LINK_LOST"})


async def refuse_unwritable_mirror(
    backend: Backend, mirror: str | None, *, write: bool = True
) -> None:
    """See whether the host can write there, by writing unless `write` is false; a host that is away
    is not waited for.

    Raises:
        HostError: `ROOT_NOT_WRITABLE`, it can't.
    """
    if mirror is None or not mirror.startswith(ON_BOX):
        return
    try:
        problem = await backend.try_folder(mirror.removeprefix(ON_BOX), write=write)
    except HostError as error:
        if error.code in _AWAY:
            return
        raise
    if problem is not None:
        raise HostError(
            "ROOT_NOT_WRITABLE",
            f"Checkpoints can't be mirrored on {backend.name}: {problem}.",
            "Name a folder of the box that its user may write, `host:/path`; or `operator`.",
            field="checkpoint.mirror",
        )
