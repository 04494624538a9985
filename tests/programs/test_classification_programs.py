"""Classification problems as programs: their values are the definitions' values, and what makes no sense is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.problems import phi
from support.programs import samples

from evenhand.constraints.kinds import EqualizedOdds, LossParity
from evenhand.constraints.labelled_rows import FeatureRows
from evenhand.errors import ConstraintError, DataError, InputError
from evenhand_reproductions.programs.pooled import Pooled
from evenhand_reproductions.programs.problems import constrained, neyman_pearson


def test_neyman_pearson_is_equation_30() -> None:
    dealt, at = samples(), np.linspace(-0.5, 0.5, 5)
    federated = neyman_pearson(dealt, [0.1, 0.2, 0.3])
    objective = 0.0
    for sample, program, limit in zip(dealt, federated.clients, (0.1, 0.2, 0.3), strict=True):
        loss = phi("loss", 1.0, sample.features @ at, sample.labels)[0]
        objective += loss[sample.labels == -1].mean() / 3
        assert program.at(at).constraints[0] == pytest.approx(loss[sample.labels == 1].mean())
        assert program.own.upper[0] == limit
    assert sum(program.at(at).value for program in federated.clients) == pytest.approx(objective)


@pytest.mark.parametrize("weighting", ["rows", "clients"])
def test_local_global_and_the_servers_own_rows(weighting: str) -> None:
    *dealt, server = samples(clients=4)
    at = np.linspace(-0.5, 0.5, 5)

    def disparity(sample: FeatureRows) -> float:
        loss = phi("loss", 1.0, sample.features @ at, sample.labels)[0]
        group = sample.groups["group"].to_numpy()
        return float(loss[group == "a"].mean() - loss[group == "b"].mean())

    own = constrained(dealt, LossParity(0.1), scope="both", server=server, weighting=weighting)
    assert own.shared.n_rows == 0
    assert own.server is not None
    assert own.server.at(at).constraints[0] == pytest.approx(disparity(server))
    for sample, program in zip(dealt, own.clients, strict=True):
        assert program.at(at).constraints[0] == pytest.approx(disparity(sample))
    everybody = FeatureRows(
        np.vstack([sample.features for sample in dealt]),
        np.concatenate([sample.labels for sample in dealt]),
        pd.concat([sample.groups for sample in dealt], ignore_index=True),
    )
    together = constrained(dealt, LossParity(0.1), scope="global", weighting=weighting)
    pooled = Pooled(together.clients, None, together.shared)
    assert pooled.at(at).constraints[0] == pytest.approx(disparity(everybody))
    losses = [phi("loss", 1.0, s.features @ at, s.labels)[0] for s in dealt]
    mean = np.concatenate(losses).mean() if weighting == "rows" else np.mean([loss.mean() for loss in losses])
    assert pooled.at(at).value == pytest.approx(mean)


def test_the_regulariser_is_counted_once() -> None:
    at = np.linspace(-0.5, 0.5, 5)
    mask = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    plain = sum(c.at(at).value for c in constrained(samples(), None).clients)
    ridge = sum(c.at(at).value for c in constrained(samples(), None, regulariser=0.4 * mask).clients)
    assert ridge - plain == pytest.approx(0.2 * at[:4] @ at[:4])


def test_a_client_without_a_group() -> None:
    dealt = samples()
    lone = dealt[0].groups["group"] == "a"
    dealt[0] = FeatureRows(dealt[0].features[lone], dealt[0].labels[lone], dealt[0].groups[lone].reset_index(drop=True))
    with pytest.raises(ConstraintError, match="empty at client 0"):
        constrained(dealt, LossParity(0.1), scope="local")
    left_out = constrained(dealt, LossParity(0.1), scope="local", missing_slices="leave out")
    assert [program.own.n_rows for program in left_out.clients] == [0, 1, 1]
    # Over everybody's rows the slice is not empty.
    assert constrained(dealt, LossParity(0.1), scope="global").shared.n_rows == 1


def test_what_makes_no_sense_is_refused() -> None:
    dealt = samples()
    with pytest.raises(DataError, match="one class only"):
        neyman_pearson([FeatureRows(np.ones((2, 1)), np.ones(2))])
    for labels in ([-1.0, 0.0], [0.5, 1.0], [np.nan, 1.0], [-1.0, 2.0]):
        with pytest.raises(DataError, match="-1 or"):
            FeatureRows(np.ones((2, 1)), np.array(labels))
    with pytest.raises(DataError, match="program without classes"):
        constrained([FeatureRows(np.ones((2, 1)), np.array([0.0, 1.0]))], None)
    with pytest.raises(DataError, match="finite"):
        FeatureRows(np.array([[np.nan]]), np.array([1.0]))
    with pytest.raises(InputError, match="scope"):
        constrained(dealt, LossParity(0.1), scope="everywhere")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="compares groups"):
        constrained([FeatureRows(s.features, s.labels) for s in dealt], EqualizedOdds(0.1))
    with pytest.raises(DataError, match="at least one client"):
        constrained([], None)
