"""`doctor`: what is missing on this machine, each row with its remedy."""
