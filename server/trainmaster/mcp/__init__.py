"""The MCP face: the services as tools, one file per toolset."""

from trainmaster.mcp.server import build_server, serve_stdio

__all__ = ["build_server", "serve_stdio"]
