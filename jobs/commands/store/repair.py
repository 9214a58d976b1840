"""`graphmill repair`, of the home and of the object store: shows what is damaged, asks, and removes it."""

from pathlib import Path

import click

from graphmill.assets.storage.local.repair import Damage, find_damage, remove_damage
from graphmill.assets.storage.names.manifest import Address, address_of, label_of
from graphmill.assets.storage.remote.collect import remove_stored
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.names import PREFIX, find_artifact
from graphmill.jobs.commands.store.gc import confirmed
from graphmill.kernels.errors import InputError


def repair_store(store: Store, names: tuple[str, ...], *, yes: bool = False, dry_run: bool = False) -> list[Damage]:
    """Removes artifacts that cannot be trusted, after showing them and asking, and prints how to rebuild them.

    Returns:
        The damages that are still there.

    Raises:
        InputError: a name means no artifact, or no terminal is there to answer.
    """
    unread: dict[Path, str] = {}
    found = find_damage(store, [path for name in names for path in _folders(store, name)] if names else None, unread)
    for path, reason in unread.items():
        click.echo(f"not read, stays  {label_of(address_of(path))}")
        click.echo(f"  {reason}")
    for each in found:
        click.echo(f"damaged  {each.label}")
        for problem in each.problems:
            click.echo(f"  {problem}")
    if not found:
        where = f" in {store.root}" if store.backend.url else ""
        click.echo(f"nothing that could be read is damaged{where}" if unread else f"nothing is damaged{where}")
    if not found or dry_run:
        return found
    if not yes and not confirmed(f"remove {'it' if len(found) == 1 else f'these {len(found)}'}?", "remove"):
        click.echo("nothing was removed")
        return found
    kept = [each for each in found if not remove_damage(store, each)]
    for each in found:
        click.echo(f"{'in use or replaced, stays' if each in kept else 'removed'}  {each.label}")
    if len(kept) < len(found):
        click.echo("`graphmill run PIPELINE` builds what is missing; `graphmill status PIPELINE` lists it")
    return kept


def _folders(store: Store, name: str) -> list[Path]:
    """Returns the folders that a name means; a damaged manifest does not hide one."""
    if PREFIX.fullmatch(name):
        stage, _, digits = name.rpartition("/")
        matches = [path for path in store.folders() if path.name.startswith(digits) and stage in ("", path.parent.name)]
        if not matches and not stored_matches(store, name):
            raise InputError(f"no artifact in {store.place} begins with {name!r}", "`graphmill ls` lists them")
    else:
        matches = [find_artifact(store, name).path]
    parts = []
    for path in matches:
        whole = store.find(*address_of(path))
        parts += [whole.open_part(part).path for part in whole.parts] if whole else []
    return [*matches, *parts]


def repair_stored(store: Store, names: tuple[str, ...], *, yes: bool = False, dry_run: bool = False) -> int:
    """Removes those of the named artifacts from the object store that are damaged there, after showing them and asking.

    Args:
        names: beginnings of versions, also as STAGE/BEGINNING; others name nothing there. None for all, of which entries and sizes are
            looked at.

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
