"""Renders the bundle of a recorded run again, with the decisions of its first plan."""

from __future__ import annotations

from trainmaster.home.assets import find_assets
from trainmaster.plan import Decision, Estimates, GpuAdvice, Plan
from trainmaster.plan.render import Bundle, render, render_attached
from trainmaster.store.run import Run


def bundle_of(run: Run) -> Bundle:
    """The run's bundle, rendered from what is on record."""
    if run.is_attached:
        return render_attached(run.document, find_assets())
    config = {name: value for name, value in run.document.items() if name != "run_id"}
    plan = Plan(
        config=config,
        decisions=tuple(Decision(**item) for item in run.plan["decisions"]),
        estimates=Estimates(parameters=0, memory_gib=0.0, disk_gib=0.0),
        gpu=GpuAdvice(recommended="", reason="", planned=""),
        requirements=tuple(run.plan["requirements"]),
        attached=run.plan.get("attached", {}),
    )
    return render(plan, run.run_id, find_assets())
