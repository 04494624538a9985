"""State files, checkpoints, manifests and models with anything in them, well formed or not."""

from __future__ import annotations

import copy
import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.feeding import Target, any_json, in_a_file, mutated, taken
from safetensors.numpy import save
from support.damage import damaged
from support.problems import deal, small

from evenhand.constraints import EqualOpportunity
from evenhand.models.linear import LinearModel
from evenhand.models.saved import from_state, to_state
from evenhand.protocol.job import Job
from evenhand.protocol.state import State
from evenhand.runtime.checkpointfiles import Mark, state_bytes, state_from
from evenhand.runtime.inprocess import InProcess
from evenhand.runtime.manifest import MANIFEST, Manifest, _digest, entry
from evenhand_reproductions.in_memory import Holdings

HERE, MARK = Path("state.safetensors"), Mark("a run", "party bank")
DTYPES = [np.float64, np.float32, np.int64, np.uint8, np.bool_, np.float16]


def _array(rng: random.Random) -> np.ndarray:
    shape = [rng.choice([0, 1, 3]) for _ in range(rng.randrange(3))]
    numbers = np.random.default_rng(rng.randrange(2**32)).integers(-3, 200, size=shape)
    return numbers.astype(rng.choice(DTYPES))


def _state(rng: random.Random) -> State:
    values: list[Any] = [
        1,
        0.5,
        "text",
        True,
        None,
        [1, [2]],
        {"a": {"b": 1}},
        float("nan"),
        float("inf"),
        "Zoë",
        "\ud800",
    ]
    names = ["weights", "round", "a/b c", "", "Zoë", "done", "hidden"]
    return {name: _array(rng) if rng.random() < 0.5 else rng.choice(values) for name in rng.sample(names, 4)}


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and (left.dtype, left.shape) == (right.dtype, right.shape)
            and left.tobytes() == right.tobytes()
        )
    return json.dumps(left) == json.dumps(right)


def fuzz_state_file(rng: random.Random) -> bool:
    """Files with damage, or of another owner, or well formed with another header; what is taken is what was written."""
    state = _state(rng)
    content = state_bytes(state, rng.choice([MARK, MARK, MARK, None, Mark("a run", "party shop")]))
    kind = rng.choice(["whole", "damaged", "damaged", "header", "forged"])
    if kind == "damaged":
        content = damaged(content, rng)
    elif kind == "header":
        length = int.from_bytes(content[:8], "little")
        header = json.dumps(mutated(json.loads(content[8 : 8 + length]), rng)).encode()
        size = rng.choice([len(header)] * 8 + [0, len(header) - 1, 2**40, 2**63, 2**64 - 1])
        content = size.to_bytes(8, "little") + header + content[8 + length :]
    elif kind == "forged":
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        content = save(arrays, metadata={"state": rng.choice(["", "x" * 40, "[" * 10**5, "0" * 32 + "{}"])})

    def feed() -> None:
        found = state_from(content, HERE, MARK)
        if kind == "header":
            # The header may say the same in another way; whatever it says, no number of an array is another.
            assert all(isinstance(value, np.ndarray) for value in found.values() if hasattr(value, "dtype"))
        else:
            assert found.keys() == state.keys()
            assert all(_same(found[name], state[name]) for name in state), state

    return taken(feed)


# -- checkpoints: what a run goes on from


@cache
def _run() -> tuple[Holdings, dict[str, State]]:
    problem = small(seed=2, rows=12)
    job = Job("fairvfl", (EqualOpportunity(0.1),), max_rounds=3, options={"step": "auto"})
    holdings = Holdings.of(job, deal(problem, [[0, 1], [2, 3]]), problem.labels, problem.sensitive)
    states: list[dict[str, State]] = []
    runtime = _runtime(holdings)
    runtime.on_report = lambda _: states.append(runtime.snapshot())
    runtime.run()
    return holdings, states[1]


def _runtime(holdings: Holdings) -> InProcess:
    server, parties = holdings.roles()
    return InProcess([server, *parties])


def _any_state_value(rng: random.Random) -> Any:
    return _array(rng) if rng.random() < 0.4 else any_json(rng)


def fuzz_checkpoint(rng: random.Random) -> bool:
    """States of roles and runtime with places changed or exchanged: a run goes on from them, or says why not."""
    holdings, whole = _run()
    states: Any = copy.deepcopy(whole)
    for _ in range(rng.choice([0, 1, 1, 2])):
        if rng.random() < 0.1:
            one, two = rng.sample(list(states), 2)
            states[one], states[two] = states[two], states[one]
        elif (role := rng.choice(list(states))) and rng.random() < 0.05:
            del states[role]
        else:
            changed = mutated(states[role], rng, _any_state_value)
            states[role] = changed if isinstance(changed, dict) else {}

    def feed() -> None:
        runtime = _runtime(holdings)
        runtime.restore(states)

    return taken(feed)


def fuzz_manifest(rng: random.Random) -> bool:
    """Manifests with anything in them, their digest right or not; what is taken says of files what an entry says."""
    files = {"run.toml": entry("the run", b"x")}
    content = json.loads(
        Manifest("a run", "0.2", "running", files, {"metrics.jsonl": entry("the run", b"")}).to_bytes()
    )
    del content["digest"]
    for _ in range(rng.choice([0, 1, 1, 2])):
        content = mutated(content, rng)
    if isinstance(content, dict) and rng.random() < 0.8:
        content = {**content, "digest": _digest(content)}
    text = json.dumps(content).encode()
    if rng.random() < 0.2:
        text = damaged(text, rng)

    def feed(path: Path) -> None:
        (path.parent / "run.toml").write_bytes(b"x")
        found = Manifest.read(path.parent)
        for name in found.files:
            assert found.content(path.parent, name) == b"x"

    return in_a_file(MANIFEST, text, feed)


def fuzz_model(rng: random.Random) -> bool:
    """States of models with places changed; what is taken scores rows."""
    model = LinearModel(np.zeros((0, 3)), 0.1, intercept=True)
    model.weights = np.arange(4.0)
    state: Any = dict(to_state(model))
    if rng.random() < 0.5:
        state = {"model": "mlp", "weights": np.zeros(5 * (3 + 1) + 5 + 1), "columns": 3, "hidden": [5]}
    for _ in range(rng.choice([0, 1, 1, 2])):
        changed = mutated(state, rng, _any_state_value)
        state = changed if isinstance(changed, dict) else state

    def feed() -> None:
        model = from_state(state)
        assert model.predict(np.ones((2, state["columns"]))).shape == (2,)

    return taken(feed)


TARGETS: dict[str, Target] = {
    "state file": fuzz_state_file,
    "checkpoint": fuzz_checkpoint,
    "manifest": fuzz_manifest,
    "model": fuzz_model,
}
