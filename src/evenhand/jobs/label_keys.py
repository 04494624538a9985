"""Keys of a label, the same in both splits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from evenhand.errors import JobError
from evenhand.jobs.parsing import Strict, key
from evenhand.printing import quoted


def as_plain(value: Any) -> str | int | float | bool:
    if not isinstance(value, (str, int, float, bool)):
        raise PydanticCustomError("plain", "Input should be text, a number, true or false")
    return value


Plain = Annotated[str | int | float | bool, PlainValidator(as_plain)]


class LabelSection(Strict):
    """`label = { column = "defaulted", positive = "yes" }`: what the model predicts."""

    column: str = key("Column that holds the label.", "defaulted")
    positive: Annotated[str | int | float | bool | None, PlainValidator(as_plain)] = key(
        "The label that counts as positive. By default the larger of the two, in sorted order.", "yes", None
    )
    negative: Annotated[str | int | float | bool | None, PlainValidator(as_plain)] = key(
        "The other label. With both given, clients do not say which labels occur in their rows; a stated ε needs it.",
        "no",
        None,
    )
    classes: list[Plain] | None = key(
        "All labels, if there are three or more, in the order of the model's scores; for linear models, and across "
        "clients for averaging solvers too. Between organisations vertical jobs name them in `[job]`.",
        ["A", "B", "C"],
        None,
    )


def check_classes(label: LabelSection, where: str) -> None:
    """Refuse classes that are not three or more different labels, and keys for two labels beside them."""
    if label.classes is None:
        return
    for name in ("positive", "negative"):
        if getattr(label, name) is not None:
            raise JobError(
                f"key {where}.{name} is for two labels, but {where}.classes lists more; remove one of the keys"
            )
    check_listed(label.classes, f"{where}.classes")


def check_listed(classes: Sequence[Any], where: str) -> None:
    """Refuse a list of fewer than three labels, or with one twice."""
    if len(classes) < 3 or len(set(classes)) < len(classes):
        raise JobError(f"key {where} is {quoted(list(classes))}; list each of three or more labels once")
