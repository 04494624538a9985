"""`python -m evenhand`: the command line."""

from evenhand.cli import main

main()
