"""What `--set` and a patch change of a run that exists."""

from trainmaster.plan.changes.changes import Before, Changed, changes, sets_with_patch

__all__ = ["Before", "Changed", "changes", "sets_with_patch"]
