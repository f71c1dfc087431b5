"""Maps commands to the MCP tools that do the same, for advice to agents."""

from __future__ import annotations

import re

# Commands without a tool are missing here.
TOOL_OF = {
    "plan": "plan_run",
    "launch": "launch",
    "attach": "attach",
    "runs": "list_runs",
    "status": "get_run",
    "logs": "tail_log",
    "metrics": "query_metrics",
    "plot": "plot_metrics",
    "wait": "wait_for_event",
    "inspect": "inspect_run",
    "diagnose": "diagnose",
    "checkpoints": "list_checkpoints",
    "stop": "stop",
    "resume": "resume",
    "fetch": "fetch_files",
    "clean": "clean_run",
    "provision": "provision",
    "release": "release",
    "hosts": "list_hosts",
    "offers": "list_offers",
    "hosts add": "add_host",
    "alerts add": "create_alert",
}
_COMMAND = re.compile(r"\btrainmaster ((?:hosts|alerts) add|[a-z]+)\b")


def tools_in(advice: str) -> list[str]:
    """The tools that do what the commands in a text do, in its order, each once."""
    found = (TOOL_OF.get(command) for command in _COMMAND.findall(advice))
    return list(dict.fromkeys(tool for tool in found if tool is not None))
