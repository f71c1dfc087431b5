"""How the MCP server over HTTP and the board listen: who is let in, for how long, what they log."""
