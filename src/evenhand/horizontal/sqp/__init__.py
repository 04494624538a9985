"""Programs across clients by sequential quadratic programming."""

from evenhand.horizontal.sqp.options import SQPOptions
from evenhand.horizontal.sqp.solve import sqp, sqp_roles

__all__ = ["SQPOptions", "sqp", "sqp_roles"]
