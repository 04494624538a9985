"""Nobody's constructor sees another's data: no parameter of the solver rooms holds what several participants have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_rooms import PACKAGE, SOURCE, is_inside, modules

# By room, the classes that hold what one participant has, or (the second set) what several have.
OWN_DATA: dict[str, tuple[set[str], set[str]]] = {
    "vertical": ({"PartyColumns", "LabelledRows", "ServerData", "PartyData"}, {"Start"}),
    "horizontal": ({"ClientRows", "ClientData", "HorizontalServerData"}, set()),
}
OWN_DATA["solvers"] = (OWN_DATA["vertical"][0] | OWN_DATA["horizontal"][0], OWN_DATA["vertical"][1])
CONTAINERS = {"Sequence", "Mapping", "Iterable", "Iterator", "Collection", "list", "dict", "tuple", "set", "frozenset"}
# Who may be given several participants' data, and why: optimisations for a process that has everybody's data anyway.
SEES_EVERYBODY = {
    "evenhand.solvers.roles.compiled": "the way in to such an optimisation",
    "evenhand.vertical.vfb2._compiled": "loads the compiled loop",
    "evenhand.vertical.vfb2.compiled.CompiledVFB2.__init__": "all parties' rows side by side, for the compiled loop",
    "evenhand.solvers.roles.clients": "the way in to clients in one tensor",
    "evenhand.horizontal.averaging.build._Builder.batched": "builds them",
    "evenhand.horizontal.averaging.batched.BatchedClients.__init__": "all clients' rows in one tensor",
    "evenhand.horizontal.averaging.batched.BatchedClients._check_normalisation": "refuses rows that cannot be in it",
    "evenhand.horizontal.averaging.measuring.LocalData.__init__": "the tensor itself",
    # Not roles: the loop over everybody by which terms come about. Nothing but summaries goes from one to another.
    "evenhand.solvers.agreeing.combine": "in one process only: checks and warnings that a deployment cannot make",
    "evenhand.solvers.agreeing.held_values": "groups as the clients' tables write them",
}


def holders(annotation: ast.AST, one: set[str], inside: bool = False) -> Iterator[bool]:
    """For each mention of a participant's data, whether it is inside a container: then there are several."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, (ast.Name, ast.Attribute)):
        if (annotation.id if isinstance(annotation, ast.Name) else annotation.attr) in one:
            yield inside
        return
    if isinstance(annotation, ast.Subscript):
        kind = {getattr(annotation.value, name, None) for name in ("id", "attr")}
        if "Literal" not in kind:
            yield from holders(annotation.slice, one, inside or bool(kind & CONTAINERS))
        return
    for child in ast.iter_child_nodes(annotation):
        yield from holders(child, one, inside)


def sees_several(annotations: list[tuple[ast.AST, bool]], one: set[str], several: set[str]) -> bool:
    """Whether what is annotated so has more than one participant's data, all together."""
    mentions = [inside for annotation, many in annotations for inside in holders(annotation, one, many)]
    whole = any(True for annotation, _ in annotations for _ in holders(annotation, several))
    return whole or any(mentions) or len(mentions) > 1


def seeing_everybody(source: Path, room: str) -> set[str]:
    """Functions with several participants' data among their parameters, and fields and aliases of such a type."""
    one, several = OWN_DATA[room]
    found: set[str] = set()

    def visit(node: ast.AST, place: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = child.args
                plain = [*given.posonlyargs, *given.args, *given.kwonlyargs]
                annotations = [(arg.annotation, False) for arg in plain if arg.annotation]
                annotations += [(arg.annotation, True) for arg in (given.vararg, given.kwarg) if arg and arg.annotation]
                if sees_several(annotations, one, several):
                    found.add(f"{place}.{child.name}")
                visit(child, f"{place}.{child.name}")
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{place}.{child.name}")
            elif isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
                if sees_several([(child.annotation, False)], one, several):
                    found.add(f"{place}.{child.target.id}")
            elif isinstance(child, ast.Assign) and isinstance(child.value, ast.Subscript):
                if sees_several([(child.value, False)], one, several):
                    found.add(f"{place}.{ast.unparse(child.targets[0])}")
            else:
                visit(child, place)

    for module, path in modules(source).items():
        if is_inside(module, f"{PACKAGE}.{room}"):
            visit(ast.parse(path.read_text(encoding="utf-8")), module)
    return found


@pytest.mark.parametrize("room", OWN_DATA)
def test_no_constructor_takes_another_participants_data(room: str) -> None:
    """By their annotations, which mypy holds to; that roles can be built apart is in the contract suites."""
    allowed = {place for place in SEES_EVERYBODY if is_inside(place, f"{PACKAGE}.{room}")}
    assert seeing_everybody(SOURCE, room) == allowed


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def build(terms: Terms, own: ServerData) -> Server: ...", False),
        ("def build(terms: Terms, name: str, own: PartyData | None = None) -> Mapping[str, PartyData]: ...", False),
        ("def build(own: PartyData, how: Literal['leave out'] = 'leave out') -> Server: ...", False),
        ("class P:\n    party: Callable[[Terms, str, PartyData], Party]", False),
        ("def build(parties: Sequence[PartyColumns]) -> Server: ...", True),
        ("def build(own: ServerData, parties: Mapping[str, PartyData]) -> Server: ...", True),
        ("def build(own: ServerData, other: PartyData) -> Server: ...", True),
        ("def build(*parties: PartyData) -> Server: ...", True),
        ("def build(start: Start | None) -> Server: ...", True),
        ("def build(parties: 'list[problem.PartyData]') -> Server: ...", True),
        ("class S:\n    def __init__(self, parties: dict[str, PartyData]) -> None: ...", True),
        ("class S:\n    parties: Mapping[str, PartyData]", True),
        ("class P:\n    run: Callable[[Terms, Mapping[str, PartyData]], Run] | None", True),
        ("def outer() -> None:\n    def inner(parties: tuple[PartyData, ...]) -> None: ...", True),
        ("Everybody = Mapping[str, PartyData]", True),
    ],
)
def test_who_sees_everybody_is_found(code: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "vertical").mkdir()
    (tmp_path / "vertical" / "some.py").write_text(code)
    assert len(seeing_everybody(tmp_path, "vertical")) == found
