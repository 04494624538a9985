"""Programs across clients by sequential quadratic programming."""

from evenhand.horizontal.sqp.options import SQPOptions
from evenhand.horizontal.sqp.solve import sqp, sqp_roles
from evenhand.moved import keep_old_names

__all__ = ["SQPOptions", "sqp", "sqp_roles"]

keep_old_names(__name__)
