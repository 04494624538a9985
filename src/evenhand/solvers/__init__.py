"""The registry of solvers: one class of entry for both splits, and what follows from being listed."""

from evenhand.protocol.solver import Solver
from evenhand.solvers.registry import HORIZONTAL, VERTICAL, register

__all__ = ["HORIZONTAL", "VERTICAL", "Solver", "register"]
