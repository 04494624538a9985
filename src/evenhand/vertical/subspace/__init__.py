"""Subspace: fair in ten rounds."""

from evenhand.moved import keep_old_names
from evenhand.vertical.subspace.roles import SOLVER

__all__ = ["SOLVER"]

keep_old_names(__name__)
