"""Nodes on which jobs of a run could not begin, for want of its folder or of a module.

Of a run that has trained, one such node says nothing of the cluster's others: the next jobs avoid
it. A run that never has, and one whose jobs find several such nodes in a row, is given up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainer_runtime.core.answers.slurm import JobId
from trainer_runtime.host.files.layout import RunFolder
from trainer_runtime.host.slurm.programs import SlurmError, run_program
from trainer_runtime.host.slurm.submitted import Line, note_job, submitted_lines

# Such jobs in a row before the run is given up.
MOST_FAULTY = 3
# A node is repaired at some time; and a long list would leave no node.
_AVOIDED_FOR_S = 6 * 3600.0
_MOST_AVOIDED = 8
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def note_faulty(run: RunFolder, job_id: JobId, node: str | None) -> None:
    """Note that a job could not begin on its node; once. `node`: None where nobody knows it."""
    if not any(line.get("job_id") == job_id and "faulty" in line for line in _lines(run)):
        note_job(run, job_id, faulty=node or "")


def faulty_jobs(run: RunFolder) -> set[object]:
    """The jobs of which that was noted."""
    return {line.get("job_id") for line in _lines(run) if "faulty" in line}


def is_hopeless(run: RunFolder, submitted: Sequence[Line]) -> bool:
    """Whether a run is given up whose newest job is noted; `submitted`: the lines of its jobs."""
    return not has_trained(run) or len(_in_a_row(run, submitted)) >= MOST_FAULTY


def in_words(run: RunFolder, submitted: Sequence[Line]) -> str:
    """Which jobs and nodes are at fault, as the subject of a sentence."""
    jobs = _in_a_row(run, submitted)
    nodes = {
        str(line["faulty"])
        for line in _lines(run)
        if line.get("job_id") in jobs and line.get("faulty")
    }
    named = f" ({', '.join(sorted(nodes))})" if nodes else ""
    if len(jobs) < 2:
        return f"the node{named} of job {jobs[0] if jobs else '?'}"
    return f"each node{named} of {len(jobs)} jobs in a row, the last {jobs[0]},"


def avoided_nodes(run: RunFolder) -> list[str]:
    """The nodes that the next job is kept from."""
    since_t = time.time() - _AVOIDED_FOR_S
    names: dict[str, None] = {}
    for line in reversed(_lines(run)):
        name, t = line.get("faulty"), line.get("t")
        if isinstance(name, str) and _NODE.fullmatch(name) and isinstance(t, float) and t > since_t:
            names[name] = None
    return sorted(list(names)[:_MOST_AVOIDED])


def node_of(job_id: JobId, shown: str | None) -> str | None:
    """The node that a job's script ran on; `shown`: what `scontrol show job` prints of it."""
    for word in (shown or "").split():
        if word.startswith("BatchHost="):
            return _single(word[len("BatchHost=") :])
    with suppress(SlurmError):  # a cluster without accounting
        shape = ("--noheader", "--parsable2", "--allocations", "--format=NodeList")
        return _single(run_program("sacct", *shape, f"--jobs={job_id}").strip())
    return None


def has_trained(run: RunFolder) -> bool:
    return any(run.root.glob("attempts/*/process.json"))


def _in_a_row(run: RunFolder, submitted: Sequence[Line]) -> list[object]:
    """The newest jobs, as long as they are noted; the newest first."""
    noted, job_ids = faulty_jobs(run), []
    for line in reversed(submitted):
        if line.get("job_id") not in noted:
            break
        job_ids.append(line.get("job_id"))
    return job_ids


def _single(name: str) -> str | None:
    return name if _NODE.fullmatch(name) else None


def _lines(run: RunFolder) -> list[Line]:
    return submitted_lines(Path(run.root))
