"""The answers of services, tools and commands."""
