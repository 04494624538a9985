"""`evenhand identity …`: the key by which a participant is known to the others, and its fingerprint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evenhand.printing import remark, say

app = typer.Typer(help="Make an identity, and compare fingerprints with the other participants.", no_args_is_help=True)
FolderArgument = Annotated[Path, typer.Argument(help="Folder of the identity.")]


@app.command()
def make(
    folder: FolderArgument,
    name: Annotated[str, typer.Option(help="Name of the participant, as in the job; `server` for the server.")],
) -> None:
    """Make an identity; start-up kits have one already.

    \b
    Example:
      evenhand identity make identity --name shop
    """
    from evenhand.protocol.identity import Identity, fingerprint, new_identity
    from evenhand.runtime.identityfiles import write_identity

    secret = new_identity()
    public = Identity(name, secret, {}).public
    write_identity(folder, Identity(name, secret, {name: public}))
    say(f"{name} {public.hex()}")
    say(f"fingerprint {fingerprint(public)}")
    remark(f"send the others the first line; {folder} holds the secret half and stays here")


@app.command()
def add(
    folder: FolderArgument,
    name: Annotated[str, typer.Argument(help="Name of the other participant.")],
    public: Annotated[str, typer.Argument(help="Its public key: 64 hexadecimal digits.")],
) -> None:
    """Add another participant's public key. Compare its fingerprint over the telephone first.

    \b
    Example:
      evenhand identity add identity bank 3f0c...
    """
    from evenhand.errors import InputError
    from evenhand.protocol.identity import Identity, fingerprint
    from evenhand.runtime.identityfiles import read_identity, write_known

    own = read_identity(folder)
    try:
        found = bytes.fromhex(public)
    except ValueError as error:
        raise InputError(f"{public!r} is not a public key; it has 64 hexadecimal digits") from error
    if own.known.get(name, found) != found:
        raise InputError(f"{folder} has another key of {name}; remove its line in identities.toml to replace it")
    write_known(folder, Identity(own.name, own.secret, {**own.known, name: found}).known)
    say(f"{name}: {fingerprint(found)}")


@app.command()
def show(folder: FolderArgument) -> None:
    """Show the fingerprints of all known participants, to compare them over the telephone.

    \b
    Example:
      evenhand identity show kits/shop/identity
    """
    from evenhand.protocol.identity import fingerprint
    from evenhand.runtime.identityfiles import read_identity

    own = read_identity(folder)
    for name, public in sorted(own.known.items()):
        say(f"{name}: {fingerprint(public)}{' (this participant)' if name == own.name else ''}")
