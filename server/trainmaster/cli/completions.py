"""What a shell completes beside commands and options: the names of runs."""

from __future__ import annotations

import os
from contextlib import closing

from trainmaster.errors.errors import TrainmasterError
from trainmaster.home.paths import find_home

_MOST = 50


def run_names(incomplete: str) -> list[str]:
    """The newest runs whose names begin so; by id where several have one name. None where there is
    no home, or it can't be read: a shell has no place for an error."""
    path = find_home(os.environ).control_db
    if not path.is_file():
        return []
    from trainmaster.store.control import Control

    try:
        with closing(Control(path)) as control:
            newest = control.list.newest(_MOST)
    except TrainmasterError:
        return []
    names = [run.name for run in newest]
    shown = [run.name if names.count(run.name) == 1 else run.run_id for run in newest]
    return [name for name in shown if name.startswith(incomplete)]
