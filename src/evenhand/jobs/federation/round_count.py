"""Count the rounds that a participant answers, over all runs on its table (`most_rounds`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from evenhand.jobs.federation.files import PartyFile
from evenhand.jobs.ledger import Ledger, data_name, run_name
from evenhand.protocol.policy import OwnPolicy
from evenhand.protocol.roles import Role
from evenhand.runtime.site import Program
from evenhand.training.together import Training, TrainingRunner


@dataclass
class RoundCount:
    """A participant's count of rounds in its ledger.

    A party without a limit counts too, so that one that it sets later covers earlier runs.

    Parameters
    ----------
    own
        The participant's own file.
    base
        Folder of the file, which has the ledger.
    secret
        The participant's own secret, which is the same in all attempts at a run.
    """

    own: PartyFile
    base: Path
    secret: bytes
    _begun: bool = field(default=False, init=False)
    """Whether this attempt has begun to train."""

    @property
    def policy(self) -> OwnPolicy:
        """Return the participant's policy; a job must leave room for the rounds of other runs.

        Terms that are offered after training has begun are those of another training, without a party that is gone. It
        may take all its rounds, so the rounds of this run count too.
        """
        return self.own.policy.to_policy(
            lambda: self._ledger.rounds(self._table, without="" if self._begun else self._run)
        )

    def counted(self, run_training: TrainingRunner) -> TrainingRunner:
        """Return a runner that records each round on disk before the training role answers it."""

        def run(role: Role, stage: Training) -> Program[None]:
            self._begun = True
            role.on_round = self._record
            yield from run_training(role, stage)

        return run

    def _record(self) -> None:
        self._ledger.add_round(self._table, self._run, self.own.policy.most_rounds)

    @cached_property
    def _ledger(self) -> Ledger:
        return Ledger(self.base)

    @property
    def _table(self) -> str:
        return data_name(self.own.party, self.base)

    @property
    def _run(self) -> str:
        return run_name(self.secret)
