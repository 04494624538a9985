"""The command line: one file for each command."""

from evenhand.cli.app import main

__all__ = ["main"]
