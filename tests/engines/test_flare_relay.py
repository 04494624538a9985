"""A dishonest NVIDIA FLARE server, in a real federation: what it does to messages of others is refused with a word."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="make federation runs these in an environment with NVIDIA FLARE")

from support.shops import Shops, running_shops

from evenhand.errors import RunError

pytestmark = pytest.mark.timeout(600)
RELAY = Path(__file__).parents[1] / "support" / "relay"


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shops]:
    folder = tmp_path_factory.mktemp("relay")
    (folder / "mode").write_text("honest")
    begin, before = Shops.start, dict(os.environ)

    def start(self: Shops, name: str) -> None:
        """Only the server's processes meddle."""
        if name == "server":
            path = os.pathsep.join([str(RELAY), *filter(None, [before.get("PYTHONPATH")])])
            os.environ.update(PYTHONPATH=path, EVENHAND_TEST_RELAY=str(folder / "mode"))
        try:
            begin(self, name)
        finally:
            os.environ.pop("EVENHAND_TEST_RELAY", None)
            os.environ["PYTHONPATH"] = before.get("PYTHONPATH", "")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Shops, "start", start)
        with running_shops(folder / "shops", protection="masked") as running:
            yield running


def submit(shops: Shops, mode: str, **job: Any) -> dict[str, Any]:
    (shops.folder.parent / "mode").write_text(mode)
    return shops.submit(max_rounds=3, **job)


def test_a_relay_that_only_reads_changes_nothing(shops: Shops) -> None:
    assert submit(shops, "honest")["result"]["certificate"]["rounds"] <= 3


@pytest.mark.parametrize(
    ("mode", "said"),
    [("changed", "was changed, replaced or moved"), ("repeated", "came in the place of message")],
)
def test_what_the_relay_changes_is_refused_by_its_receiver(shops: Shops, mode: str, said: str) -> None:
    with pytest.raises(RunError, match=r"shop: it stopped \(ProtocolError\)"):
        submit(shops, mode)
    assert said in (shops.folder / "shop.log").read_text()


def test_a_dropped_message_cannot_be_acknowledged_by_the_relay(shops: Shops) -> None:
    with pytest.raises(RunError, match="a packet in the name of shop says what shop has not said"):
        submit(shops, "acknowledged")


def test_an_answer_in_the_name_of_another_is_refused(shops: Shops) -> None:
    with pytest.raises(RunError, match="from shop was changed, replaced or moved"):
        submit(shops, "named")


def test_what_parties_send_each_other_is_not_the_relays_to_change(shops: Shops) -> None:
    with pytest.raises(RunError, match=r"it stopped \(ProtocolError\)"):
        submit(shops, "forwarded", solver="vfb2-svrg", protection="none", options={"batch_size": 40})
    logs = "".join((shops.folder / f"{name}.log").read_text() for name in ("bank", "shop", "phone"))
    assert "Somebody between the two is not honest" in logs
