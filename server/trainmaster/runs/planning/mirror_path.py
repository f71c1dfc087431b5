"""Checks the checkpoint mirror on the host, `checkpoint.mirror: host:/path`, before it is
needed."""

from __future__ import annotations

from trainer_runtime.core.files.corpus import ON_BOX
from trainmaster.backends import Backend, FolderTester
from trainmaster.errors.errors import HostError


async def refuse_unwritable_mirror(
    backend: Backend, mirror: str | None, *, write: bool = True
) -> None:
    """Check that the host can write there, by writing unless `write` is false; an unreachable
    host is not waited for.

    Raises:
        HostError: `ROOT_NOT_WRITABLE`, it can't; `UNSUPPORTED`, it has no permanent folders.
    """
    if mirror is None or not mirror.startswith(ON_BOX):
        return
    tester = FolderTester.of(backend, field="checkpoint.mirror")
    try:
        problem = await tester.test_folder(mirror.removeprefix(ON_BOX), write=write)
    except HostError as error:
        if error.unanswered:
            return
        raise
    if problem is not None:
        raise HostError(
            "ROOT_NOT_WRITABLE",
            f"Checkpoints can't be mirrored on {backend.name}: {problem}.",
            "Name a folder of the host that its user may write, `host:/path`; or `operator`.",
            field="checkpoint.mirror",
        )
