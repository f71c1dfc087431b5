"""Stands in until the real one is here."""

import typer


def demo_command(as_json: bool = typer.Option(False, "--json")) -> None:
    """Train."""
