"""Who sees each kind of message, and what becomes of it at each level of protection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from evenhand.protocol.messages import Schema

_TO_SERVER: Final = "each party → server"
_TO_PARTIES: Final = "server → each party"
_FROM_CLIENT: Final = "each client → server"
_TO_CLIENTS: Final = "server → each client"
_BETWEEN: Final = "party → party"
_BEFORE: Final = "participant → server"
_AFTER: Final = "server → participants"

WAYS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("offer", "outcome", "checkpoint", "go-on"), _AFTER),
    **dict.fromkeys(("accepted", "refused", "kept", "have"), _BEFORE),
    **dict.fromkeys(("ids", "unmatched", "blinded-ids", "fully-blinded-ids"), _TO_SERVER),
    "common-rows": _TO_PARTIES,
    "summary": _FROM_CLIENT,
    "agreed": _TO_CLIENTS,
    "labels": "label holder → other active parties",
    **dict.fromkeys(("partial-scores", "sides", "across-scores"), _TO_SERVER),
    "scored": _TO_PARTIES,
    **dict.fromkeys(("spectrum", "scores", "direction", "gradient-norm"), _TO_SERVER),
    "own-columns": "label holder → server, at its side",
    "joint-scores": "server → label holder",
    "weighted-derivative": "server → passive parties",
    "combined-scores": "server → active parties",
    **dict.fromkeys(("derivative", "coefficients", "go-back"), _TO_PARTIES),
    **dict.fromkeys(("derivatives", "nodes", "leaf-values"), _TO_PARTIES),
    **dict.fromkeys(("leaves", "split-offer"), _TO_SERVER),
    "routes": "server → label holder",
    **dict.fromkeys(("full-pass", "chances", "begin", "proceed"), _TO_PARTIES),
    **dict.fromkeys(("norms", "staleness", "applied"), _TO_SERVER),
    **dict.fromkeys(("totals", "finished"), "active parties → server"),
    **dict.fromkeys(("masked-totals", "masked-scores"), _BETWEEN),
    **dict.fromkeys(("score-request", "theta"), "active parties → each party"),
    **dict.fromkeys(("model", "final", "tilt", "fairness", "share"), _TO_CLIENTS),
    **dict.fromkeys(("update", "sums", "rates", "gradient", "difference", "shared-update"), _FROM_CLIENT),
    **dict.fromkeys(("prox-al begin", "prox-al outer", "prox-al step", "prox-al finish"), _TO_CLIENTS),
    **dict.fromkeys(("prox-al summands", "prox-al outcome", "prox-al answer"), _FROM_CLIENT),
    **dict.fromkeys(("sqp trials", "sqp leave out", "sqp finish"), _TO_CLIENTS),
    **dict.fromkeys(("sqp judged", "sqp left out"), _FROM_CLIENT),
    **dict.fromkeys(
        ("trees count", "trees refine", "trees edges", "trees splits", "trees values", "trees finish"), _TO_CLIENTS
    ),
    **dict.fromkeys(
        ("trees counted", "trees refined", "trees root", "trees histograms", "trees leaf sums"), _FROM_CLIENT
    ),
    **dict.fromkeys(("masking-key", "masked-answer", "opened-shares"), _FROM_CLIENT),
    **dict.fromkeys(("masking-keys", "exchange", "unmask"), _TO_CLIENTS),
    "trained-model": _TO_CLIENTS,
    "counts-by-group": _FROM_CLIENT,
    "measured": _TO_CLIENTS,
}
"""From whom to whom each kind goes, as the tests see it go."""
SUMMED: Final = frozenset({"spectrum", "scores", "direction", "gradient-norm"})
"""Messages of linear parties that masks let the server see in sums only (solvers subspace and fairvfl)."""
TELLS_LABELS: Final = frozenset({"derivative", "weighted-derivative"})
FROM_LABELS: Final = TELLS_LABELS | {
    *("combined-scores", "coefficients", "go-back", "product", "hidden-derivative", "encrypted-derivative"),
    *("derivatives", "nodes", "relay", "leaf-values", "routes", "joint-scores"),
}
"""What follows from labels; under label privacy it follows from randomised responses, and tells no more."""
SENT_AS_IT_IS: Final = "as it is"


def with_label_privacy(schema: Schema) -> str:
    """What becomes of a kind of message where labels have privacy."""
    return "from randomised responses" if schema.kind in FROM_LABELS else SENT_AS_IT_IS


def at_levels(schema: Schema) -> tuple[str, str]:
    """What becomes of a kind of message under ``"masked"``, and under ``"dealer"`` or ``"encrypted"``."""
    if schema.adds is not None:
        return "the server learns the sum over clients", "–"
    if schema.kind in SUMMED:
        return ("the server learns the sum over passive parties",) * 2
    if schema.kind in TELLS_LABELS:
        return SENT_AS_IT_IS, "not sent to passive parties: each learns X_kᵀν"
    way = WAYS.get(schema.kind, "")
    return SENT_AS_IT_IS, "–" if "client" in way else SENT_AS_IT_IS
