"""What `graphmill gc` and `graphmill repair` do in the object store, behind what they do in the home."""

from __future__ import annotations

import click

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.names.manifest import Address, label_of
from graphmill.assets.storage.remote.collect import collect_stored, find_stored_garbage, remove_stored
from graphmill.assets.storage.remote.leases import EXPIRY_SECONDS
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.names import PREFIX
from graphmill.jobs.commands.store.repair import agreed, confirmed, say_if_spared


def collect_stored_garbage(store: Store, keep: int, *, yes: bool = False, dry_run: bool = False) -> int:
    """Frees what nothing in the object store refers to, after showing it and asking; arguments and result are those of `collect_garbage`.

    Raises:
        InputError: `keep` is negative, the object store cannot be used, or no terminal is there to answer.
    """
    garbage = find_stored_garbage(store, keep)
    for key in garbage.damaged_leases:
        until = f"nothing goes there until it expires, in {EXPIRY_SECONDS // 60} minutes at most"
        click.echo(
            f"not read  {key} in {store.backend.url} is a damaged lease, or one of another version of graphmill: {until}"
        )
    for address in garbage.damaged_entries:
        label = label_of(address)
        click.echo(
            f"not read  {label}: its entry in {store.backend.url} is damaged; remove it: graphmill repair {label}"
        )
    where = f"in {store.backend.url}; {len(garbage.kept)} artifacts stay there"
    if not agreed(garbage, where, yes=yes, dry_run=dry_run, there=" there"):
        return 0
    freed_bytes = collect_stored(store, garbage, say_if_spared)
    click.echo(f"freed {format_bytes(freed_bytes)} in {store.backend.url}")
    return freed_bytes


def repair_stored(store: Store, names: tuple[str, ...], *, yes: bool = False, dry_run: bool = False) -> int:
    """Removes those of the named artifacts from the object store that are damaged there, after showing them and asking.

    Args:
        names: beginnings of versions, also as STAGE/BEGINNING; others name nothing there. None for all, of which entries and sizes are
            looked at.
        yes: do not ask.
        dry_run: only show.

    Returns:
        The number of damaged artifacts that are still there.

    Raises:
        InputError: the object store cannot be used, or no terminal is there to answer.
    """
    damaged = _damage(store, names)
    for address, problems in damaged.items():
        click.echo(f"damaged in {store.backend.url}  {label_of(address)}")
        for problem in problems:
            click.echo(f"  {problem}")
    if not damaged or dry_run:
        return len(damaged)
    if not yes and not confirmed(f"remove {'it' if len(damaged) == 1 else f'these {len(damaged)}'} there?", "remove"):
        click.echo("nothing was removed there")
        return len(damaged)
    for address in damaged:
        remove_stored(address)
        click.echo(f"removed in {store.backend.url}  {label_of(address)}")
    click.echo("`graphmill run PIPELINE` builds what is missing, or shares what a home has")
    return 0


def _damage(store: Store, names: tuple[str, ...]) -> dict[Address, list[str]]:
    """Returns address -> damage of the named artifacts of the object store; for no name of all, as far as entries and sizes tell."""
    found = (
        {address for name in names for address in stored_matches(store, name)} if names else store.backend.addresses()
    )
    return store.backend.problems(sorted(found), every_byte=bool(names))


def not_verified(store: Store) -> str:
    """Returns the line of `graphmill verify` about artifacts that only the object store has; "" if there are none."""
    num = sum(not store.root.joinpath(*address).is_dir() for address in store.backend.addresses())
    these = f"{num} artifact{'s are' if num != 1 else ' is'} only in {store.backend.url}"
    return f"{these}, and not read: name STAGE/VERSION to read it there" if num else ""


def stored_matches(store: Store, name: str) -> list[Address]:
    """Returns the artifacts of the object store that a beginning of a version names; none for any other name."""
    if not PREFIX.fullmatch(name):
        return []
    stage, _, digits = name.rpartition("/")
    return [each for each in store.backend.addresses(stage) if each[1].startswith(digits)]
