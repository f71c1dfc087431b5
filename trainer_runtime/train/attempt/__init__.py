"""What every attempt has: configuration, events, device, optimizer, exit codes."""
