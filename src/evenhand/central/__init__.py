"""What a user who may pool labels, groups and scores can run after training: post-processing of one score per row.

FairVFL compares itself with both ("FedBCD + EO", "FedBCD + CEO"). Neither works across parties: whoever fits or applies
them sees the score, the group and, when fitting, the label of every row.
"""

from evenhand.central.calibrated_equal_odds import CalibratedEqualOddsPostprocessor
from evenhand.central.equal_odds import EqualOddsPostprocessor

__all__ = ["CalibratedEqualOddsPostprocessor", "EqualOddsPostprocessor"]
