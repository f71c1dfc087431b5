"""Several hosts: node 0's supervisor and the members of it on the other nodes."""
