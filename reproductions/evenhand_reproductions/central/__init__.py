"""Post-processing of scores with pooled labels and groups, as baselines.

FairVFL compares itself with both ("FedBCD + EO", "FedBCD + CEO"). Neither works across parties: both need the
score and the group of every row, and its label for fitting.
"""

from evenhand_reproductions.central.calibrated_equal_odds import CalibratedEqualOddsPostprocessor
from evenhand_reproductions.central.equal_odds import EqualOddsPostprocessor

__all__ = ["CalibratedEqualOddsPostprocessor", "EqualOddsPostprocessor"]
