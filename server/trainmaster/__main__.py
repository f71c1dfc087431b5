"""`python3 -m trainmaster`: the command line where `trainmaster` is not on the path."""

from trainmaster.cli import main

main()
