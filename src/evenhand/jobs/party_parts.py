"""Read a party's part of a finished run: its encoder and its model."""

from __future__ import annotations

from evenhand.data.tables.encoding import PartyEncoder
from evenhand.data.tables.unencoded import encoder_from_state
from evenhand.errors import DataError, RunError
from evenhand.jobs.vertical.learners import kept_learner
from evenhand.models.base import Scorer
from evenhand.models.saved import from_state, needs_learner, state_is_of_trees
from evenhand.protocol.state import State
from evenhand.runtime.folder import RunFolder


def party_encoder(folder: RunFolder, name: str) -> PartyEncoder:
    """Return a party's encoder from a finished run."""
    state = folder.read_party(name, "encoder")
    try:
        return encoder_from_state(state)
    except DataError as error:
        raise RunError(f"{folder.path}: the encoder of party {name!r} cannot be used: {error}") from error


def party_model(folder: RunFolder, name: str, encoder: PartyEncoder) -> Scorer:
    """Return a party's model from a finished run; refuse a model that does not fit the party's encoder."""
    state = folder.read_party(name, "weights")
    try:
        texts = trees_texts(folder, name, state) if state_is_of_trees(state) else ("", "")
        model = from_state(state, *texts, kept_learner(folder, name) if needs_learner(state) else None)
    except RunError as error:
        raise RunError(f"{folder.path}: party {name!r}: {error}") from error
    if state["columns"] != encoder.width_out:
        raise RunError(
            f"{folder.path}: party {name!r} has weights for {state['columns']} encoded columns, its encoder makes "
            f"{encoder.width_out}; the folder was changed"
        )
    return model


def trees_texts(folder: RunFolder, name: str, state: State) -> tuple[str, str]:
    """Return the texts of a party's trees, and of its splits in trees across parties if it has any."""
    return folder.read_trees(name, "trees"), folder.read_trees(name, "splits") if state.get("splits") else ""
