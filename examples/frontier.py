"""Measure the cost of fairness on Adult: choose ε by cross-validation over three parties, and draw the frontier.

python examples/frontier.py [FOLDER WITH THE ADULT FILES]
"""

import sys
from pathlib import Path

from evenhand import EqualOpportunity, VerticalClassifier, select
from evenhand.data import load

data = load("adult", source=Path(sys.argv[1]) if len(sys.argv) > 1 else None)
bank = data.frame[["age", "capital-gain", "capital-loss", "education", "education-num"]]
employer = data.frame[["workclass", "occupation", "hours-per-week"]]
registry = data.frame[["marital-status", "relationship", "race", "sex", "native-country"]]

chosen = select(
    VerticalClassifier(constraint=EqualOpportunity(), pos_label=data.positive),
    {"bank": bank, "employer": employer, "registry": registry},
    data.label,
    sensitive_features=data.sensitive,
    epsilons=[0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.001],
)
print(chosen.table.round(3).to_string(index=False))
print(f"chosen: epsilon {chosen.epsilon}, {chosen.estimator.n_iter_} rounds, {chosen.estimator.bytes_sent_:,} bytes")
chosen.plot(Path("docs/frontier.png"))
