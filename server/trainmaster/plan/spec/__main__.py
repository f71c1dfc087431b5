"""Prints the reference of the spec's fields, as docs/spec.md holds it."""

from trainmaster.plan.spec.reference import reference_markdown

print(reference_markdown(), end="")
