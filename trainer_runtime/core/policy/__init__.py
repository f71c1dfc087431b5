"""Recovery policy: what follows from an end or a finding."""
