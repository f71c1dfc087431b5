"""`python3 -m trainmaster`: the command line for whoever has no `trainmaster` on the path."""

from trainmaster.cli import main

main()
