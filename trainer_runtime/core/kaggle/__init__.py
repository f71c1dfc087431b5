"""What a kernel's session and its client exchange."""
