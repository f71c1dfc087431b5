"""The MCP server over HTTP: the protocol's streamable transport, with authorization.

request ─ gate ─ authentication ─ limits ─ the server of the caller's role ─ tool
"""

from trainmaster.mcp.http.serve import Listening, serve_http

__all__ = ["Listening", "serve_http"]
