"""Which runs of a host are supervised: one question for all of them instead of one for each."""

from __future__ import annotations

from collections.abc import Sequence

from trainmaster.backends import SupervisorFinder
from trainmaster.errors.errors import HostError
from trainmaster.sync.workspace import Workspace


class SupervisedRuns:
    """Of these runs of one host. The host is asked when an answer is first needed."""

    def __init__(self, workspace: Workspace, host: str, run_ids: Sequence[str]) -> None:
        self._workspace = workspace
        self._host = host
        self._run_ids = run_ids
        self._found: frozenset[str] | None = None

    async def has(self, run_id: str) -> bool:
        """Whether the host has said that the run's supervisor lives; False where it is to be asked
        for this run alone.

        Raises:
            HostError: the host can't be reached.
        """
        if self._found is None:
            self._found = frozenset()
            self._found = await self._ask()
        return run_id in self._found

    async def _ask(self) -> frozenset[str]:
        finder = SupervisorFinder.find(self._workspace.backend(self._host))
        if finder is None or len(self._run_ids) < 2:
            return frozenset()
        try:
            return await finder.supervised(self._run_ids)
        except HostError as error:
            if error.unanswered:
                raise
            return frozenset()
