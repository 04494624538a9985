"""Programs across clients by sequential quadratic programming."""

from evenhand.horizontal.sqp.options import SQPOptions
from evenhand.horizontal.sqp.solver import SOLVER

__all__ = ["SOLVER", "SQPOptions"]
