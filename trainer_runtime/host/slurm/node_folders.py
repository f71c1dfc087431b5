"""The folders of a job's further nodes: `nodes/<rank>` in the run's, which all nodes share.

What came with the run is linked, and so are its checkpoints, which ranks of all nodes write
together; what a node writes of itself lies there: attempts, logs, locks.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from trainer_runtime.host.files.layout import RunFolder

# Each node has its own of these; what begins with a dot is a lock or a file on its way.
_OWN = frozenset({"attempts", "final", "logs", "nodes"})
_LATER = (".secrets.json", "checkpoints")


def make_node_folder(run: RunFolder, rank: int) -> RunFolder:
    """The folder of a node; linked are the files that are there before the run's first attempt.

    Raises:
        OSError: it can't be made.
    """
    node = run.node(rank)
    run.checkpoints.mkdir(exist_ok=True)  # a node may keep for long that a folder is missing
    if not node.root.exists():
        making = node.root.with_name(f".{rank}.{os.getpid()}")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        for name in sorted(os.listdir(run.root)):
            if name not in (*_OWN, *_LATER) and not name.startswith("."):
                making.joinpath(name).symlink_to(Path("../..", name))
        for name in _LATER:
            making.joinpath(name).symlink_to(Path("../..", name))
        making.rename(node.root)
    node.supervisor_errors.parent.mkdir(exist_ok=True)
    return node
