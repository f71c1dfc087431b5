"""Slurm: a batch script."""

from __future__ import annotations

from trainmaster.plan.export.compose import GRACE_S
from trainmaster.plan.export.needs import Needs
from trainmaster.plan.templates import rendered
from trainmaster.words.assets import Assets

_TEMPLATE = "export/job.sbatch.j2"
_DAY_S, _HOUR_S, _MINUTE_S = 86400, 3600, 60


def slurm_script(name: str, needs: Needs, start: str, lost: str, assets: Assets) -> str:
    """The script; `name` is a run's, which no shell and no directive reads as anything else."""
    asked = {
        "job-name": name,
        "nodes": "1",
        "ntasks": "1",
        "cpus-per-task": str(needs.cpus),
        "mem": "" if needs.memory_gib is None else f"{needs.memory_gib}G",
        "gres": f"gpu:{needs.gpus}" if needs.gpus else "",
        "time": "" if needs.limit_s is None else _time(needs.limit_s),
        "output": "train-%j.log",
        "open-mode": "append",
        # Only the batch shell gets it, which train.sh has become.
        "signal": f"B:TERM@{GRACE_S}",
    }
    directives = "\n".join(
        f"#SBATCH --{option}={value}" for option, value in asked.items() if value
    )
    return rendered(assets, _TEMPLATE, {"directives": directives, "start": start, "lost": lost})


def _time(seconds: float) -> str:
    """Slurm's `days-hours:minutes:seconds`."""
    days, rest = divmod(int(seconds), _DAY_S)
    hours, rest = divmod(rest, _HOUR_S)
    return f"{days}-{hours:02}:{rest // _MINUTE_S:02}:{rest % _MINUTE_S:02}"
