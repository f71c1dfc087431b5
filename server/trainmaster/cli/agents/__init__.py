"""Connects the programs of coding agents to the MCP server and gives them the skills."""
