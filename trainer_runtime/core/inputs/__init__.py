"""Forms of rows, and the byte tokenizer."""
