"""A leaf of a tree's own for rows that the party lacks: a root above the tree that LightGBM has grown on the others.

The root splits on the party's last column, which is 1 for absent rows and 0 for all others. The new leaf is the last.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from evenhand.arrays import Array, Booleans

# LightGBM's code of a split on a number without missing values; they would go left.
_NUMBER: Final = "2"


class Newton(NamedTuple):
    """Sums over some rows: gradient, curvature, number of rows; and λ₂."""

    gradient: float
    curvature: float
    rows: int
    l2: float

    @classmethod
    def of(cls, gradient: Array, curvature: Array, rows: Booleans, l2: float) -> Newton:
        return cls(float(gradient[rows].sum()), float(curvature[rows].sum()), int(rows.sum()), l2)

    def __add__(self, other: object) -> Newton:
        assert isinstance(other, Newton)
        return Newton(self.gradient + other.gradient, self.curvature + other.curvature, self.rows + other.rows, self.l2)

    @property
    def value(self) -> float:
        """The value that lowers the objective most."""
        return -self.gradient / (self.curvature + self.l2)

    @property
    def gain(self) -> float:
        """How much that value lowers twice the objective."""
        return self.gradient**2 / (self.curvature + self.l2)


def with_absent_leaf(tree: str, column: int, absent: Newton, there: Newton) -> str:
    """Return LightGBM's text of a tree with one more leaf, for absent rows.

    Parameters
    ----------
    column
        The column that marks absent rows.
    absent, there
        Sums over absent rows, and over those that the tree was grown on.
    """
    entries = dict(line.split("=", 1) for line in tree.splitlines() if "=" in line)
    leaves, whole = int(entries["num_leaves"]), absent + there
    if leaves == 1:
        # LightGBM writes a tree without a split as a leaf of value and weight zero.
        entries |= {"leaf_value": repr(there.value), "leaf_weight": repr(there.curvature)}
    first = {
        "split_feature": str(column),
        "split_gain": repr(absent.gain + there.gain - whole.gain),
        "threshold": "0.5",
        "decision_type": _NUMBER,
        "left_child": "1" if leaves > 1 else "-1",
        "right_child": str(-leaves - 1),
        "internal_value": repr(whole.value),
        "internal_weight": repr(whole.curvature),
        "internal_count": str(whole.rows),
    }
    last = {
        "leaf_value": repr(absent.value),
        "leaf_weight": repr(absent.curvature),
        "leaf_count": str(absent.rows),
    }
    for name in ("left_child", "right_child"):
        # Every node is one further on; leaves, which are negative, stay.
        entries[name] = " ".join(str(int(one) + (int(one) >= 0)) for one in entries[name].split())
    entries |= {name: f"{value} {entries[name]}".strip() for name, value in first.items()}
    entries |= {name: f"{entries[name]} {value}" for name, value in last.items()}
    entries["num_leaves"] = str(leaves + 1)
    return "\n".join(f"{name}={value}" for name, value in entries.items())
