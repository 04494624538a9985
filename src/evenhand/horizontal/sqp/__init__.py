"""Programs across clients by sequential quadratic programming."""

from evenhand.horizontal.sqp.options import SQPOptions
from evenhand.horizontal.sqp.solver import SOLVER
from evenhand.moved import keep_old_names

__all__ = ["SOLVER", "SQPOptions"]

keep_old_names(__name__)
