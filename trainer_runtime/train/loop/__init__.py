"""One attempt: the trainer's loop, or a framework's."""
