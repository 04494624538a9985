"""Messages of any content, against their schemas and against the roles of every solver at any point of a run."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from fuzz.feeding import Target, any_json, any_value, mutated, taken
from support.clients import deal_rows, unequal
from support.contracts import Make
from support.damage import damaged
from support.problems import deal, small

from evenhand.constraints import EqualOpportunity, LossParity
from evenhand.data import PartyEncoder
from evenhand.errors import SmallSliceWarning
from evenhand.horizontal.averaging.messages import VOCABULARY as AVERAGING
from evenhand.horizontal.problem import ClientData, HorizontalServerData
from evenhand.horizontal.prox_al.messages import VOCABULARY as PROX_AL
from evenhand.horizontal.sqp.messages import VOCABULARY as SQP
from evenhand.protocol import agree, align, enrol
from evenhand.protocol.job import Job
from evenhand.protocol.messages import Field, Message, Schema, Vocabulary
from evenhand.protocol.roles import SERVER, Role
from evenhand.protocol.terms import VerticalTerms
from evenhand.protocol.transcript import Transcript
from evenhand.runtime.inprocess import InProcess
from evenhand.solvers.registry import HORIZONTAL
from evenhand.solvers.registry import VERTICAL as ACROSS_COLUMNS
from evenhand.training.horizontal import build_roles
from evenhand.vertical.messages import VOCABULARY as VERTICAL
from evenhand.vertical.vfb2.messages import VOCABULARY as VFB2
from evenhand.vertical.vfb2.options import METHODS
from evenhand_reproductions.in_memory import Holdings, horizontal_terms

VOCABULARIES = [VERTICAL, VFB2, AVERAGING, PROX_AL, SQP, enrol.VOCABULARY, align.VOCABULARY, agree.VOCABULARY]


def _sizes(schema: Schema, rng: random.Random) -> dict[str, int]:
    named = {size for field in schema.fields.values() for size in field.shape if isinstance(size, str)}
    return {name: rng.choice([0, 1, 3]) for name in named}


def _array(field: Field, sizes: Mapping[str, int], rng: random.Random) -> np.ndarray:
    """An array that fits a field, of ordinary or extreme numbers."""
    shape = [
        sizes[size] if isinstance(size, str) else rng.choice([0, 2, 5]) if size is None else size
        for size in field.shape
    ]
    if field.dtype in ("i8", "u1"):
        limits = np.iinfo(field.dtype)
        some = [0, 1, 2, limits.max, limits.min, rng.randint(limits.min, limits.max)]
    else:
        some = [0.0, -0.0, 1.0, rng.gauss(0.0, 1.0), -1e300 if field.dtype == "f8" else -1e30, 5e-324, 1e-3]
    values = [rng.choice(some) for _ in range(int(np.prod(shape)))]
    return np.array(values, dtype=field.dtype).reshape(shape)


def _spoiled(array: np.ndarray, rng: random.Random) -> Any:
    """Something in an array's place that does not, or hardly, fit."""
    other = rng.choice(["f2", "f4", ">f8", "c16", "i4", ">i8", "u8", "O", "S3", "U2", "M8[s]", "?", "f8,f8"])
    with np.errstate(all="ignore"):
        choices: list[Any] = [
            any_value(rng),
            np.zeros(array.shape, dtype=other),
            array[None],
            array[..., :-1] if array.ndim else array[()],
            np.ma.masked_array(array, mask=True),
            np.full(array.shape, rng.choice([np.nan, np.inf, -np.inf])),
            np.broadcast_to(np.float64(rng.choice([1.0, 1e308])), array.shape),
            array.T,
        ]
    return rng.choice(choices)


def fuzz_schemas(rng: random.Random) -> bool:
    """Messages with anything in any place; what is taken has each array as the schema says, and only finite numbers."""
    vocabulary = rng.choice(VOCABULARIES)
    schema = rng.choice(list(vocabulary))
    sizes = _sizes(schema, rng)
    body: Any = {name: _array(field, sizes, rng) for name, field in schema.fields.items()}
    head: list[Any] = ["a", "b", schema.kind]
    for _ in range(rng.choice([0, 1, 1, 2])):
        place = rng.choice(["head", "body", "name", "lost", *["value"] * 4, "size"])
        if place == "head":
            head[rng.randrange(3)] = any_value(rng)
        elif place == "body":
            body = any_value(rng)
        elif place == "size" and sizes:
            sizes.pop(rng.choice(sorted(sizes)))
        if isinstance(body, dict) and body:
            name = rng.choice(list(body))
            if place == "name":
                body = {**body, rng.choice([None, 1, (), b"x", "\x1b[2J", "x" * 10**4]): body[name]}
            elif place == "lost":
                del body[name]
            elif place == "value" and isinstance(body[name], np.ndarray):
                body[name] = _spoiled(body[name], rng)

    def feed() -> None:
        if rng.random() < 0.2 and isinstance(body, dict) and all(isinstance(name, str) for name in body):
            message = schema.message(head[0], head[1], **{name: one for name, one in body.items() if name != "self"})
        else:
            message = Message(*head, body)
        Transcript(keep_messages=True).add(0.0, message)
        vocabulary.check(message, sizes)
        for name, field in schema.fields.items():
            array = message[name]
            assert array.dtype == np.dtype(field.dtype)
            assert all(
                found == sizes.get(size, size) for found, size in zip(array.shape, field.shape, strict=True) if size
            )
            assert np.isfinite(np.asarray(array)).all()

    return taken(feed)


# -- roles


class Play(NamedTuple):
    """Roles of a run that has been played once, and the messages that each was sent."""

    make: Make
    heard: dict[str, list[Message]]


def _played(make: Make) -> Play:
    runtime = InProcess(list(make().values()), transcript=Transcript(keep_messages=True))
    runtime.run()
    heard: dict[str, list[Message]] = {name: [] for name in make()}
    for message in runtime.transcript.messages or []:
        heard[message.receiver].append(message)
    return Play(make, {name: messages for name, messages in heard.items() if messages})


PROBLEM = small(seed=3, rows=16)
OPTIONS: dict[str, dict[str, Any]] = {
    "fairvfl": {"step": "auto"},
    "fedbcd": {"step": 0.5},
    "prox-al": {"penalty": 30.0},
    **{name: {"batch_size": 4} for name in METHODS},
}


def _named(roles: tuple[Role, Any]) -> dict[str, Role]:
    server, others = roles
    return {role.name: role for role in [server, *others]}


def _vertical(solver: str) -> Play:
    constraints = (EqualOpportunity(0.05),) if ACROSS_COLUMNS[solver].takes_constraints else ()
    job = Job(solver, constraints, max_rounds=2, tol=0.0, alpha=0.1, options=OPTIONS.get(solver, {}))
    holdings = Holdings.of(job, deal(PROBLEM, [[0, 1], [2], [3]], (0, 1)), PROBLEM.labels, PROBLEM.sensitive)
    return _played(lambda: _named(holdings.roles()))


def _horizontal(solver: str) -> Play:
    constraints = (LossParity(0.05),) if HORIZONTAL[solver].takes_constraints else ()
    rounds = 8 if solver == "trees" else 2
    job = Job(solver, constraints, max_rounds=rounds, tol=1e-3, options=OPTIONS.get(solver, {}))
    rows = deal_rows(PROBLEM, unequal(PROBLEM, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSliceWarning)
        terms = horizontal_terms(job, rows)
    clients = {client.name: ClientData(client) for client in rows}
    return _played(lambda: _named(build_roles(terms, HorizontalServerData(), clients)))


def _preparing(what: str) -> Play:
    if what == "enrol":
        terms = VerticalTerms(Job("subspace"), {"bank": "active", "shop": "passive"}, 7, {"sex": ("f", "m")})
        return _played(
            lambda: _named(
                (
                    enrol.EnrolServer(terms),
                    [enrol.EnrolParty(name, VerticalTerms, enrol.anything, None) for name in terms.names],
                )
            )
        )
    if what == "align":
        ids = {"bank": pd.Index(["a", "b", "c"]), "shop": pd.Index(["c", "d", "a"])}
        return _played(
            lambda: _named(
                (align.AlignServer(list(ids), "inner"), [align.AlignParty(name, index) for name, index in ids.items()])
            )
        )
    labels, codes = np.array([1.0, -1.0, 1.0]), {"sex": np.array([0, 1, 1])}
    if what == "labels":
        return _played(
            lambda: _named((agree.LabelServer(["shop"], labels, codes), [agree.LabelParty("shop", 3, ["sex"])]))
        )
    frames = {
        "a": pd.DataFrame({"age": [1.0, 2.0], "job": ["x", "y"]}),
        "b": pd.DataFrame({"age": [4.0], "job": ["z"]}),
    }
    told = {name: PartyEncoder(scale=True).partial_fit(frame).to_summary() for name, frame in frames.items()}
    return _played(
        lambda: _named(
            (
                agree.AgreeServer(list(told), lambda told: PartyEncoder.from_summaries(told, scale=True).to_state()),
                [agree.AgreeClient(name, summary) for name, summary in told.items()],
            )
        )
    )


PLAYS = {
    **dict.fromkeys(("enrol", "align", "labels", "agree"), _preparing),
    **dict.fromkeys(ACROSS_COLUMNS, _vertical),
    **{name: _horizontal for name in HORIZONTAL if name in ("sqp", "prox-al") or find_spec("torch")},
}


@cache
def _play(name: str) -> Play:
    return PLAYS[name](name)


def _changed(message: Message, vocabulary: Vocabulary, names: list[str], rng: random.Random) -> Message:
    """A message that fits its schema and says something else."""
    if rng.random() < 0.1:
        return Message(rng.choice([*names, "mallory", SERVER]), message.receiver, message.kind, message.body)
    schema = next(one for one in vocabulary if one.kind == message.kind)
    body = dict(message.body)
    for name in rng.sample(list(body), rng.randint(1, len(body))):
        array, field = body[name], schema.fields[name]
        if field.dtype == "u1" and rng.random() < 0.7:
            body[name] = _other_text(array, rng)
        elif field.dtype == "i8" and array.ndim == 0:
            body[name] = np.array(
                int(array) + rng.choice([-1, 1, 7]) if rng.random() < 0.5 else rng.choice([-1, 0, 2**62])
            )
        else:
            sizes = {size: found for found, size in zip(array.shape, field.shape, strict=True) if isinstance(size, str)}
            body[name] = _array(field, sizes, rng)
    return Message(message.sender, message.receiver, message.kind, body)


def _other_text(array: np.ndarray, rng: random.Random) -> np.ndarray:
    content = array.tobytes()
    try:
        changed = json.dumps(mutated(json.loads(content), rng, any_json)).encode()
    except ValueError:
        changed = damaged(content, rng)
    return np.frombuffer(changed, dtype=np.uint8)


def fuzz_roles(rng: random.Random) -> bool:
    """A role is told something else than it was, at any point of a run, and then goes on as before."""
    play = _play(rng.choice(list(PLAYS)))
    name = rng.choice(list(play.heard))
    heard = play.heard[name]
    role = play.make()[name]
    wrong = rng.randrange(len(heard))

    def feed() -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            role.start()
            role.work()
            for place, message in enumerate(heard):
                told = message if place != wrong else _changed(message, role.vocabulary, list(play.heard), rng)
                role.receive(told)
                role.work()

    return taken(feed)


TARGETS: dict[str, Target] = {"message schemas": fuzz_schemas, "messages to roles": fuzz_roles}
