"""The MCP server over HTTP: the protocol's streamable transport, with authorization.

connection ─ names ─ gate: authentication, limits, quotas ─ sessions ─ the role's server ─ tool
"""

from trainmaster.mcp.http.serve import Listening, serve_http

__all__ = ["Listening", "serve_http"]
