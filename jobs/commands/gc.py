"""`graphmill gc`: shows the artifacts that a collection would free, asks, and frees them."""

from __future__ import annotations

import sys

import click

from graphmill.assets.sizes import format_bytes
from graphmill.assets.storage.collect import Item, collect, find_garbage
from graphmill.assets.storage.store import Store
from graphmill.assets.storage.version import short
from graphmill.kernels.errors import InputError


def collect_garbage(store: Store, keep: int, *, yes: bool = False, dry_run: bool = False, verbose: bool = False) -> int:
    """Frees the artifacts that nothing refers to, after showing them and asking.

    Args:
        keep: number of newest versions that stay, of each train table, seed and split, and of each pipeline's data of a stage.
        yes: do not ask.
        dry_run: only show.
        verbose: also show what stays, and why.

    Returns:
        Number of freed bytes; 0 if there was nothing to free, or the answer was no.

    Raises:
        InputError: `keep` is negative, or no terminal is there to answer.
    """
    garbage = find_garbage(store, keep)
    for item in (*garbage.kept, *garbage.unfinished) if verbose else ():
        click.echo(f"keep    {_line(item)}")
    going = (*garbage.files, *garbage.folders)
    for item in going:
        click.echo(f"remove  {_line(item)}")
    waiting = f" and {len(garbage.unfinished)} checkpoints" if garbage.unfinished else ""
    stay = f"{len(garbage.kept)} artifacts{waiting} stay{'' if verbose else ' (-v names them)'}"
    click.echo(f"{len(going)} to remove, {format_bytes(garbage.num_bytes)} in {store.home}; {stay}")
    if not going or dry_run:
        return 0
    if not yes and not confirmed():
        click.echo("nothing was removed")
        return 0
    spared: list[Item] = []
    freed_bytes = collect(store, garbage, lambda item, word: spared.append(item) if word == "spared" else None)
    for item in spared:
        click.echo(f"spared  {_name(item)}: it came into use meanwhile")
    click.echo(f"freed {format_bytes(freed_bytes)}")
    return freed_bytes


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
    stage, version = item.address
    return f"checkpoint of {short(version)}" if item.path.is_file() else f"{stage}/{short(version)}"
