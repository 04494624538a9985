"""Compare a model's correct decisions with those of one answer for everybody: the commonest label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def below_majority(right: float, common: float, rows: int, where: str, constraints: Iterable[str]) -> str:
    """Return what to say of a model that is right less often than the commonest label; empty if it is not.

    Parameters
    ----------
    right, common
        Correct decisions of the model, and of the commonest label for everybody.
    where
        Which rows these are: ``"training"`` or ``"held-out"``.
    constraints
        Kinds of the constraints of the run, which may ask for such a model.
    """
    if right >= common:
        return ""
    bounds = ", ".join(sorted({kind.replace("-", " ") for kind in constraints}))
    why = f"The bound ({bounds}) or the cut may ask for that" if bounds else "A cut may ask for that"
    return (
        f"{right / rows:.1%} of the {rows:,} {where} rows are decided right; the commoner label for everybody is right "
        f"for {common / rows:.1%}. {why}; otherwise there are too few rows for these columns"
    )


def below_lottery(right: float, rows: int, limits: Sequence[tuple[float, float]]) -> str:
    """Return what to say of a model under limits on error rates that a lottery keeps with more correct decisions.

    The lottery gives the limited label to a share of everybody, whatever their columns say. Under limits for both
    labels there is none.

    Parameters
    ----------
    right
        Share of correct decisions of the model on its `rows` training rows.
    limits
        For each limit its value, and the share of rows of the label that it is for.
    """
    if len(limits) != 1:
        return ""
    [(limit, share)] = limits
    lottery = (1.0 - limit) * share + limit * (1.0 - share)
    if right >= lottery - 1e-9:
        return ""
    return (
        f"{right:.1%} of the {rows:,} training rows are decided right; a lottery that gives the limited label to "
        f"{1.0 - limit:.0%} of everybody keeps the limit of {limit:g}, and is right for {lottery:.1%}. There are too "
        "few rows for this limit and these columns: raise the limit, use more rows or fewer columns"
    )
