"""What processes stand at, read from dumps of their stacks, and what that makes of a stall."""
