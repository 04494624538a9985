"""Programs across clients by sequential quadratic programming."""

from evenhand.horizontal.sqp.options import SQP
from evenhand.horizontal.sqp.solver import SOLVER

__all__ = ["SOLVER", "SQP"]
