"""`graphmill repair`: shows the damaged artifacts of the store, asks, and removes them."""

from __future__ import annotations

from pathlib import Path

import click

from graphmill.assets.storage.local.repair import Damage, find_damage, remove_damage
from graphmill.assets.storage.names.manifest import address_of, label_of
from graphmill.assets.storage.store import Store
from graphmill.jobs.commands.names import PREFIX, find_artifact
from graphmill.jobs.commands.store.gc import confirmed
from graphmill.jobs.commands.store.stored import stored_matches
from graphmill.kernels.errors import InputError


def repair_store(store: Store, names: tuple[str, ...], *, yes: bool = False, dry_run: bool = False) -> list[Damage]:
    """Removes artifacts that cannot be trusted, after showing them and asking, and prints how to rebuild them.

    Args:
        names: artifacts to look at, with their parts; none for all.
        yes: do not ask.
        dry_run: only show.

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
