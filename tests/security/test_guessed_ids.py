"""Lists of guessed ids: a set of everybody under private ids, and questions about everybody after training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.asking import PARTIES, asked, trained

pytest.importorskip("nacl")

from evenhand.errors import EvenhandError, RunError
from evenhand.jobs.federation.files import read_party
from evenhand.jobs.federation.predicting import ASKED_FOR
from evenhand.privacy.private_align import PrivateAlignParty, PrivateAlignServer
from evenhand.protocol.align import id_sums
from evenhand.protocol.asking import ASKED, TAKEN, AskedParty, AskServer
from evenhand.protocol.messages import Message, as_bytes
from evenhand.protocol.roles import SERVER, Sends

RING = ("bank", "shop", "phone")
EVERYBODY = pd.Index([f"{number:04d}" for number in range(1500)])


def run_ring(bank: pd.Index, **limits: int) -> PrivateAlignServer:
    rng = np.random.default_rng(0)
    shop, phone = (pd.Index(EVERYBODY[np.sort(rng.choice(1500, 60, replace=False))]) for _ in range(2))
    server = PrivateAlignServer(RING)
    roles: dict[str, Any] = {"server": server, "bank": PrivateAlignParty("bank", bank, RING)}
    roles |= {name: PrivateAlignParty(name, ids, RING, **limits) for name, ids in (("shop", shop), ("phone", phone))}
    queue = [message for role in roles.values() for message in role.start()]
    while queue:
        message = queue.pop(0)
        queue += roles[message.receiver].receive(message)
    return server


def test_a_table_of_all_possible_ids_is_refused() -> None:
    with pytest.raises(RunError, match=r"bank has 1,500 ids, and (shop|phone) compares its 60 with at most 1,000"):
        run_ring(EVERYBODY)


def test_the_policys_own_limit_counts() -> None:
    with pytest.raises(RunError, match="at most 100"):
        run_ring(EVERYBODY[:101], most_ids=100)
    assert run_ring(EVERYBODY[:100], most_ids=100).done
    assert run_ring(EVERYBODY, most_ids=1500).done


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path]:
    """A finished run with private ids, after which the shop has other customers too."""
    folder = tmp_path_factory.mktemp("private")
    paths = trained(folder, {"solver": "subspace", "ids": "private", "max_rounds": 3})
    table = folder / "shop" / "table.csv"
    known = pd.read_csv(table)
    others = known.head(40).assign(id=[f"c{number}" for number in range(300, 340)])
    pd.concat([known, others]).to_csv(table, index=False)
    return paths, folder / "runs"


def held(paths: dict[str, Path], runs: Path, ids: list[str]) -> set[str]:
    """Ask for ids; return those that got a score."""
    told = asked(paths, runs, ids)["server"]
    assert not isinstance(told, Exception), told
    return {one for one, score in zip(ids, told["scores"], strict=True) if score is not None}


GUESSES = [f"c{number:03d}" for number in range(400)]


def test_after_private_ids_only_people_of_the_run_are_admitted_to(federation: tuple[dict[str, Path], Path]) -> None:
    """The party denies all others, whether it has them or not: the answer says nothing about them."""
    paths, runs = federation
    own = read_party(paths["shop"])
    assert own.policy.questions is None
    assert held(paths, runs, GUESSES) == {f"c{number:03d}" for number in range(120)}


def test_the_party_itself_denies_the_others() -> None:
    ids = pd.Index(["a", "b", "c", "d"])
    kind, sums = id_sums(pd.Index(["d", "x", "b", "a"]))
    party = AskedParty("shop", ids, among=id_sums(pd.Index(["a", "b"]))[1])
    (answer,) = party.receive(ASKED.message("server", "shop", kind=as_bytes(kind), sums=sums))
    assert answer["held"].tolist() == [0, 0, 1, 1]


def with_policy(paths: dict[str, Path], name: str, policy: str, folder: Path) -> dict[str, Path]:
    changed = paths[name].with_name(f"{folder.name}.toml")
    changed.write_text(f"{paths[name].read_text()}\n[policy]\n{policy}\n")
    return paths | {name: changed}


def test_the_party_counts_what_it_is_asked(federation: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    paths, runs = federation
    # Questions of other tests count too, whatever the policy was then.
    (runs / "phone" / "first" / ASKED_FOR).unlink(missing_ok=True)
    counted = with_policy(paths, "phone", "most_asked = 25", tmp_path)
    for place in range(2):
        assert len(held(counted, runs, GUESSES[10 * place : 10 * place + 10])) == 10
    ends = asked(counted, runs, GUESSES[20:30])
    assert isinstance(ends["phone"], RunError)
    assert "20 people were asked for before and 10 are now; its policy allows 25" in str(ends["phone"])
    assert isinstance(ends["server"], EvenhandError)
    # Asked in another question, the rest of the quota is still there.
    assert len(held(counted, runs, GUESSES[20:25])) == 5


def test_a_party_may_answer_no_questions(federation: tuple[dict[str, Path], Path], tmp_path: Path) -> None:
    paths, runs = federation
    ends = asked(with_policy(paths, "shop", 'questions = "none"', tmp_path), runs, GUESSES[:3])
    assert isinstance(ends["shop"], RunError)
    assert "answers no questions" in str(ends["shop"])
    assert {"server", *PARTIES} == set(ends)


def test_parties_that_are_told_to_score_different_people_open_nothing(
    federation: tuple[dict[str, Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over different people, or over one person and many others, would take the parties' scores apart."""
    paths, runs = federation
    honest = asked(paths, runs, GUESSES[:20])["server"]["scores"]
    handle = AskServer.handle

    def deviating(server: AskServer, message: Message) -> Sends:
        sends = handle(server, message)
        return [
            TAKEN.message(SERVER, "phone", places=one["places"][::-1].copy()) if one.receiver == "phone" else one
            for one in sends
        ]

    monkeypatch.setattr(AskServer, "handle", deviating)
    ends = asked(paths, runs, GUESSES[:20])
    scores = np.array(ends["server"]["scores"], dtype=np.float64)
    assert np.abs(honest).max() < 100.0
    # Masks that do not cancel leave numbers between -8192 and 8192.
    assert np.median(np.abs(scores)) > 1000.0
