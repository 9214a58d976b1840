"""`graphmill gc` and `graphmill repair`, of the home and of the object store: show what is unused or damaged, ask, and remove it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.collect import Garbage, Item, collect, find_garbage
from graphmill.assets.storage.local.repair import Damage, find_damage, remove_damage
from graphmill.assets.storage.names.manifest import Address, address_of, label_of
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.remote.collect import collect_stored, find_stored_garbage, remove_stored
from graphmill.assets.storage.remote.leases import EXPIRY_SECONDS
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.names import PREFIX, find_artifact
from graphmill.kernels.errors import InputError


def collect_garbage(store: Store, keep: int, *, yes: bool = False, dry_run: bool = False, verbose: bool = False) -> int:
    """Frees the artifacts that nothing refers to, after showing them and asking.

    Args:
        keep: number of newest versions that stay, of each train table, seed and split, and of each pipeline's data of a stage.
        verbose: also show what stays, and why.

    Returns:
        Number of freed bytes; 0 if there was nothing to free, or the answer was no.

    Raises:
        InputError: `keep` is negative, or no terminal is there to answer.
    """
    garbage = find_garbage(store, keep)
    for item in (*garbage.kept, *garbage.unfinished) if verbose else ():
        click.echo(f"keep    {_line(item)}")
    waiting = f" and {len(garbage.unfinished)} checkpoints" if garbage.unfinished else ""
    stay = f"{len(garbage.kept)} artifacts{waiting} stay{'' if verbose else ' (-v names them)'}"
    if not agreed(garbage, f"in {store.home}; {stay}", yes=yes, dry_run=dry_run):
        return 0
    freed_bytes = collect(store, garbage, say_if_spared)
    click.echo(f"freed {format_bytes(freed_bytes)}")
    return freed_bytes


def agreed(garbage: Garbage, where: str, *, yes: bool, dry_run: bool, there: str = "") -> bool:
    """Shows what is to be removed and asks.

    Args:
        where: the place, and what stays in it, in words.
        there: the last word about something that was not removed.

    Returns:
        Whether it is to be removed.
    """
    for item in garbage.going:
        click.echo(f"remove  {_line(item)}")
    click.echo(f"{len(garbage.going)} to remove, {format_bytes(garbage.num_bytes)} {where}")
    if not garbage.going or dry_run:
        return False
    if yes or confirmed():
        return True
    click.echo(f"nothing was removed{there}")
    return False


def say_if_spared(item: Item, word: str) -> None:
    """Says that an item came into use since it was shown."""
    if word == "spared":
        click.echo(f"spared  {_name(item)}: it came into use meanwhile")


def confirmed(question: str = "remove these?", about: str = "remove these") -> bool:
    """Asks whether the things that were shown are to be removed.

    Args:
        about: the question's subject in words, for the error.

    Raises:
        InputError: no terminal is there to answer.
    """
    try:
        return click.confirm(question)
    except click.Abort:
        if not sys.stdin.isatty():
            raise InputError(f"nobody answered whether to {about}", "add --yes, or --dry-run to only look") from None
        raise


def _line(item: Item) -> str:
    about = f"  ({item.about})" if item.about and item.about not in item.why else ""
    return f"{_name(item):34} {format_bytes(item.num_bytes):>10}  {item.why}{about}"


def _name(item: Item) -> str:
    return f"checkpoint of {short(item.address[1])}" if item.checkpoint else label_of(item.address)


def repair_store(store: Store, names: tuple[str, ...], *, yes: bool = False, dry_run: bool = False) -> list[Damage]:
    """Removes artifacts that cannot be trusted, after showing them and asking, and prints how to rebuild them.

    Args:
        names: artifacts to look at, with their parts; none for all.

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
