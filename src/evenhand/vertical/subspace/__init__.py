"""Subspace: fair in ten rounds."""

from evenhand.vertical.subspace.roles import SOLVER

__all__ = ["SOLVER"]
