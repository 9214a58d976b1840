"""`graphmill gc`, of the home and of the object store: shows what nothing refers to, asks, and removes it."""

import sys

import click

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.local.collect import Garbage, Item, collect, find_garbage
from graphmill.assets.storage.names.manifest import label_of
from graphmill.assets.storage.names.version import short
from graphmill.assets.storage.remote.collect import collect_stored, find_stored_garbage
from graphmill.assets.storage.remote.leases import EXPIRY_SECONDS
from graphmill.assets.storage.store import Store
from graphmill.kernels.errors import InputError


def collect_garbage(store: Store, keep: int, *, yes: bool = False, dry_run: bool = False, verbose: bool = False) -> int:
    """Frees the artifacts that nothing refers to, after showing them and asking.

    Args:
        keep: number of newest versions that stay, of each train table, seed and split, and of each pipeline's data of a stage.

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
    """Asks whether the things that were shown are to be removed; raises InputError if no terminal is there to answer."""
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
