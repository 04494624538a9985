"""A small builder of ONNX graphs in double precision (extra `onnx`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from evenhand.errors import MissingExtraError

OPSET, ML_OPSET, IR_VERSION = 18, 5, 9
"""Version 5 of the operators for machine learning is the first with trees in double precision."""

Values = npt.NDArray[Any]


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError("Export to ONNX", "onnx") from error
    return onnx


class Graph:
    """Nodes, constants and inputs of a graph; methods return the names of what they compute.

    Every value has a row for each row of the input, and at least one column.
    """

    def __init__(self) -> None:
        self._onnx = _onnx()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, dtype: type) -> str:
        """Declare an input of one column: ``float`` or ``str``."""
        self._inputs.append(self._value(name, dtype, 1))
        return name

    def output(self, name: str, value: str, dtype: type, width: int = 1) -> None:
        """Declare an output: float, int or str."""
        self._node("Identity", [value], output=name)
        self._outputs.append(self._value(name, dtype, width))

    def constant(self, values: Any) -> str:
        name = f"constant {len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.asarray(values), name))
        return name

    def apply(self, operator: str, *inputs: str, ml: bool = False, **attributes: Any) -> str:
        """Apply an operator of ONNX, or of its part for machine learning."""
        return self._node(operator, list(inputs), "ai.onnx.ml" if ml else "", **attributes)

    def numbers(self, value: str) -> str:
        """Convert to double precision."""
        return self.apply("Cast", value, to=self._onnx.TensorProto.DOUBLE)

    def whole(self, value: str) -> str:
        """Convert to whole numbers."""
        return self.apply("Cast", value, to=self._onnx.TensorProto.INT64)

    def both(self, one: str, other: str) -> str:
        return self.apply("And", one, other)

    def total(self, value: str) -> str:
        """Sum over columns."""
        return self.apply("ReduceSum", value, self.constant(np.array([1])), keepdims=1)

    def sum(self, values: list[str]) -> str:
        """Add values of the same shape."""
        return values[0] if len(values) == 1 else self.apply("Sum", *values)

    def side_by_side(self, values: list[str]) -> str:
        return values[0] if len(values) == 1 else self.apply("Concat", *values, axis=1)

    def tensor(self, values: Any) -> Any:
        """Return a tensor for an attribute."""
        return self._onnx.numpy_helper.from_array(np.asarray(values), "")

    def model(self, facts: Mapping[str, str]) -> bytes:
        """Return the checked model with these facts as its metadata."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "evenhand", self._inputs, self._outputs, self._constants)
        versions = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=IR_VERSION, producer_name="evenhand")
        helper.set_model_props(model, dict(facts))
        self._onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())

    def _node(
        self, operator: str, inputs: list[str], domain: str = "", *, output: str | None = None, **attributes: Any
    ) -> str:
        name = f"value {len(self._nodes)}" if output is None else output
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [name], domain=domain, **attributes))
        return name

    def _value(self, name: str, dtype: type, width: int) -> Any:
        kinds = self._onnx.TensorProto
        kind = {float: kinds.DOUBLE, int: kinds.INT64, str: kinds.STRING}[dtype]
        return self._onnx.helper.make_tensor_value_info(name, kind, ["rows", width])
