"""From a spec to its plan: probes the host, the data and the model, then plans."""
