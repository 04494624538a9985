"""Secure sums that tolerate dropouts: the masks of one exchange.

Each member i adds to its words, modulo 2⁶⁴,

- a stream from its own secret b_i, and
- for each neighbour j a stream from s_ij, which both derive from their session: the member with the lower
  position adds it, the other subtracts it.

Both secrets belong to this exchange only. Member i sends shares of b_i and of each s_ij to its neighbours, sealed for
each of them, with its words. When the server knows whose words have arrived, the neighbours open their shares: of b_l
for every member l with words, and of s_ld for its neighbours d without. So the sum is exact despite dropouts. For
words that arrive late, b_d stays secret and they remain masked.

Before any share is opened, each member tells its neighbours which members it was told are present, with a code that
only the two can make (`vouch`). It opens its shares only if a quorum of its share holders was told the same. The codes
are made with the pair's key, which both have verified (`key_exchange.py`). A server that tells different members
different things gets no shares, unless more members collude with it than `neighbours.py` assumes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from nacl import bindings
from nacl.exceptions import CryptoError

from evenhand.errors import ProtocolError, RunError
from evenhand.privacy.key_exchange import Session
from evenhand.privacy.neighbours import Company, ascending
from evenhand.privacy.pairwise import Words, stream
from evenhand.privacy.shamir import SHARE_BYTES, deal, join

_PURPOSE: Final = b"evenhand sums 1"
_SEAL_BYTES: Final = 16
VOUCHER_BYTES: Final = 16


def _derived(key: bytes, label: str) -> bytes:
    return hashlib.blake2b(label.encode(), digest_size=32, key=key, person=_PURPOSE).digest()


class Member:
    """One participant's secrets.

    Parameters
    ----------
    place
        Its position in the terms.
    session
        Its secrets in this attempt. Every attempt has another session, so a resumed participant has other masks.
    names
        Names of all participants, by position.
    context
        Digest of the terms.
    """

    def __init__(self, place: int, session: Session, names: Sequence[str], context: str) -> None:
        self.place = place
        self._session, self._names, self._purpose = session, tuple(names), f"sums {context}"
        self._secret = session.secret(self._purpose)

    def _seed(self, other: int) -> bytes:
        return self._session.seed(self._names[other], self._purpose)

    def _own(self, company: Company) -> bytes:
        return _derived(self._secret, f"own {company.label}")

    def _pair(self, company: Company, other: int) -> bytes:
        return _derived(self._seed(other), f"pair {company.label}")

    def mask(self, company: Company, size: int) -> Words:
        """Return what is added to the member's words."""
        total = np.zeros(size, dtype=np.uint64)
        _add(total, self._own(company), company.label)
        for other in company.neighbours(self.place):
            _add(total, self._pair(company, other), company.label, self.place < other)
        return total

    def sealed(self, company: Company) -> list[bytes]:
        """Return the shares of the member's secrets for each neighbour, in the order of positions."""
        dealt = self._shares(company)
        return [
            bytes(
                bindings.crypto_secretbox(b"".join(share[other] for share in dealt), *self._box(company, other, True))
            )
            for other in company.neighbours(self.place)
        ]

    def _shares(self, company: Company) -> list[dict[int, bytes]]:
        """Return shares by holder: of the member's own secret, then of those with each neighbour."""
        secrets = [self._own(company), *(self._pair(company, other) for other in company.neighbours(self.place))]
        holders = company.holders(self.place)
        return [
            {
                holder - 1: share
                for holder, share in deal(
                    secret,
                    [holder + 1 for holder in holders],
                    company.threshold,
                    _derived(self._secret, f"shares {number} {company.label}"),
                ).items()
            }
            for number, secret in enumerate(secrets)
        ]

    def _box(self, company: Company, other: int, from_me: bool) -> tuple[bytes, bytes]:
        """Return nonce and key: the key belongs to this exchange and these two members, the nonce to the sender."""
        sender = self.place if from_me else other
        return sender.to_bytes(24, "big"), _derived(self._seed(other), f"seal {company.label}")

    def vouch(self, company: Company, present: Sequence[int], other: int, *, from_me: bool = True) -> bytes:
        """Return the code by which one of two neighbours tells the other which members are present."""
        sender = self.place if from_me else other
        key = _derived(self._seed(other), f"present {company.label}")
        return hashlib.blake2b(f"{sender} {list(present)}".encode(), digest_size=VOUCHER_BYTES, key=key).digest()

    def check_vouched(self, company: Company, present: Sequence[int], vouchers: Mapping[int, bytes]) -> None:
        """Refuse to go on unless a quorum of share holders was told that the same members are present."""
        same = [
            other
            for other, voucher in vouchers.items()
            if hmac.compare_digest(voucher, self.vouch(company, present, other, from_me=False))
        ]
        if len(same) + 1 < company.quorum:
            raise ProtocolError(
                f"{len(same) + 1} of {len(company.holders(self.place))} share holders were told that the same members "
                f"are present, {company.quorum} are needed; no share is opened"
            )

    def opened(self, company: Company, present: Sequence[int], sealed: Sequence[bytes]) -> bytes:
        """Return the member's shares of the secrets to open; see `wanted` for their order.

        Parameters
        ----------
        sealed
            Sealed shares of each present neighbour, in the order of positions.
        """
        inside = {self.place, *present} <= set(company.members) and self.place in present
        if len(present) < company.least or not inside or not ascending(present):
            raise ProtocolError(f"a sum over {len(present)} of {len(company.members)} is not opened")
        near = [other for other in company.neighbours(self.place) if other in present]
        if len(near) != len(sealed):
            raise ProtocolError(f"{len(sealed)} sealed shares came, of {len(near)} neighbours; they are refused")
        told = {self.place: [share[self.place] for share in self._shares(company)]}
        for other, box in zip(near, sealed, strict=True):
            told[other] = self._unsealed(company, other, box)
        return b"".join(told[owner][number] for owner, number in wanted(company, self.place, present))

    def _unsealed(self, company: Company, other: int, box: bytes) -> list[bytes]:
        try:
            content = bytes(bindings.crypto_secretbox_open(box, *self._box(company, other, False)))
        except CryptoError as error:
            raise ProtocolError(f"sealed shares of participant {other} were changed under way; refused") from error
        return [content[start : start + SHARE_BYTES] for start in range(0, len(content), SHARE_BYTES)]


def _add(total: Words, secret: bytes, label: str, adds: bool = True) -> None:
    """Add a stream to words or, as the other of two neighbours does, subtract it."""
    (np.add if adds else np.subtract)(total, stream(secret, label, total.size), out=total)


def sealed_bytes(company: Company) -> int:
    """Return the length of a neighbour's sealed shares."""
    return _SEAL_BYTES + SHARE_BYTES * (1 + len(company.neighbours(company.members[0])))


def wanted(company: Company, holder: int, present: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return which secrets a holder opens: 0 is b, 1 and up are those shared with neighbours, by position."""
    here = set(present)
    for owner in company.holders(holder):
        if owner in here:
            yield owner, 0
            for number, other in enumerate(company.neighbours(owner), start=1):
                if other not in here:
                    yield owner, number


def left_over(company: Company, size: int, present: Sequence[int], told: Mapping[int, bytes]) -> Words:
    """Return the sum of the masks in the sum of all present words.

    Parameters
    ----------
    told
        Opened shares by holder, from `Member.opened`.

    Raises
    ------
    RunError
        If too few holders opened their shares.
    """
    shares: dict[tuple[int, int], dict[int, bytes]] = {}
    for holder, content in told.items():
        asked = list(wanted(company, holder, present))
        if len(content) != SHARE_BYTES * len(asked):
            raise ProtocolError(f"participant {holder} opened {len(content)} bytes of shares; it is refused")
        for place, which in enumerate(asked):
            part = content[SHARE_BYTES * place : SHARE_BYTES * (place + 1)]
            shares.setdefault(which, {})[holder + 1] = part
    total = np.zeros(size, dtype=np.uint64)
    for owner in present:
        numbers = [number for one, number in wanted(company, owner, present) if one == owner]
        for number in numbers:
            held = shares.get((owner, number), {})
            if len(held) < company.threshold:
                raise RunError(
                    f"too many participants have gone: {len(held)} of the {len(company.holders(owner))} who hold "
                    f"shares of participant {owner}'s masks are left, {company.threshold} are needed. No sum was "
                    "learned; go on from the last checkpoint when they are back"
                )
            secret = join(dict(sorted(held.items())[: company.threshold]))
            other = owner if number == 0 else company.neighbours(owner)[number - 1]
            _add(total, secret, company.label, owner <= other)
    return total
