"""Reports the events of runs one by one, each once, whatever ends the process in between."""
