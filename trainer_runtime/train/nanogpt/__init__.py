"""What the script of nanoGPT's way of training leaves to the runtime."""
