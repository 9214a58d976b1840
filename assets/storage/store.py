"""The artifact store: `$GRAPHMILL_HOME/store/<stage>/<version>/`, content-addressed, written once, safe against
crashes.

A version names the content of an artifact (see `assets/storage/version.py`), so equal work is shared by every pipeline that asks for it.
With `$GRAPHMILL_STORE` an object store stands behind the home (assets/storage/remote/): what the home lacks is found there.
Files are the only state, without an index or a database that two processes could fight over. See `assets/storage/writer.py` for how
artifacts are published and `assets/storage/artifact.py` for their contents. Reading needs NumPy and xxhash only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path

from graphmill.assets.storage.artifact import Artifact, find_artifact, read_artifact
from graphmill.assets.storage.home import home_folder, store_url
from graphmill.assets.storage.leases import Address, Leases
from graphmill.assets.storage.refused import unread
from graphmill.assets.storage.remote.door import (
    find_stored,
    is_remote,
    share_published,
    stored_addresses,
    stored_artifacts,
)
from graphmill.assets.storage.staging import STAGING, Staging, sweep
from graphmill.assets.storage.verified import repair_remedy
from graphmill.assets.storage.version import SHORT_DIGITS, short
from graphmill.assets.storage.writer import Writer
from graphmill.kernels.errors import InputError

__all__ = ["Artifact", "Store", "Writer"]


class Store:
    """All artifacts of one home folder. Opening a store writes nothing.

    Args:
        home: the home folder, None for `$GRAPHMILL_HOME` (default `./.graphmill`).
    """

    def __init__(self, home: str | os.PathLike[str] | None = None):
        self.home = home_folder(home)
        self.root = self.home / "store"
        self.leases = Leases(self.home)

    def find(self, stage: str, version: str) -> Artifact | None:
        """Returns the artifact, or None when it or a part of it is absent or damaged: then it has to be built.

        One that only the object store has is known by its manifest; its files are fetched when they are first read.
        """
        artifact = find_artifact(self.root / stage / version)
        if artifact is None:
            artifact = find_stored(self.root, stage, version)
        return None if artifact is None or artifact.part_problems() else artifact

    def find_many(self, addresses: Sequence[Address]) -> list[Artifact | None]:
        """Finds the artifact of each address as `find` does; those that the home lacks are asked for by several requests at a time."""
        found = [self.find(*each) if not is_remote(self.root.joinpath(*each)) else None for each in addresses]
        lacking = [each for each, artifact in zip(addresses, found, strict=True) if artifact is None]
        stored = (
            {(each.stage, each.version): each for each in stored_artifacts(self.root, lacking)} if store_url() else {}
        )
        whole = {address: each for address, each in stored.items() if not each.part_problems()}
        return [artifact or whole.get(each) for each, artifact in zip(addresses, found, strict=True)]

    def open(self, stage: str, version: str, *, parts: bool = True) -> Artifact:
        """Returns the artifact after checking its manifest and sizes.

        Args:
            stage, version: the address.
            parts: whether all of its parts have to be there, too.

        Raises:
            InputError: it is absent or damaged; the text says how.
        """
        path = self.root / stage / version
        try:
            artifact = read_artifact(path)
        except (FileNotFoundError, ValueError) as error:
            artifact = find_stored(self.root, stage, version)
            if artifact is None and isinstance(error, FileNotFoundError):
                have = sum(artifact.stage == stage for artifact in self.artifacts())
                raise InputError(
                    f"{stage}/{short(version)} is not in {self.root}{behind()}, which has {have} versions of {stage}",
                    "build it (`graphmill build PIPELINE`), or set GRAPHMILL_HOME to the home that has it",
                ) from None
            if artifact is None:
                problem = f"{stage}/{short(version)} is damaged: {error}"
                raise InputError(problem, repair_remedy(path)) from error
        for name in artifact.parts if parts else ():
            artifact.open_part(name)
        return artifact

    def has(self, stage: str, version: str) -> bool:
        """Returns whether an artifact stands in the home, sound or not, or is in the object store; reads no file of it."""
        if (self.root / stage / version).exists():
            return True
        return find_stored(self.root, stage, version) is not None

    def stored_only(self, stage: str = "") -> list[Artifact]:
        """Returns the artifacts, of one stage or of all, that the object store has and the home lacks; their files are not fetched."""
        lacking = [each for each in stored_addresses(stage) if not self.root.joinpath(*each).is_dir()]
        return stored_artifacts(self.root, sorted(lacking))

    def share(self, artifact: Artifact) -> Artifact:
        """Makes an artifact one of the object store, if there is one that lacks it, with all that it was built from.

        Returns:
            The artifact, or the one that another machine stored first.

        Raises:
            InputError: the object store cannot be used.
        """
        return artifact if is_remote(artifact.path) else share_published(self.root, artifact)

    def artifacts(self) -> list[Artifact]:
        """Returns all sound artifacts, by stage and version; those that cannot be read now are left out."""
        found = []
        for path in self.folders():
            with suppress(OSError):
                found.append(self.find(path.parent.name, path.name))
        return [artifact for artifact in found if artifact is not None]

    def unread(self) -> dict[Path, str]:
        """Returns the folders of artifacts that cannot be read now, sound or not, with the reason."""
        found = {}
        for path in self.folders():
            try:
                self.find(path.parent.name, path.name)
            except OSError as error:
                found[path] = unread(error)
        return found

    def damaged(self) -> dict[Path, str]:
        """Returns the folders that hold no sound artifact, with the reason."""
        reasons = {}
        for path in self.folders():
            try:
                problems = read_artifact(path).part_problems()
            except (FileNotFoundError, ValueError) as error:
                problems = [str(error)]
            except OSError:  # `unread` lists it
                continue
            if problems:
                reasons[path] = "; ".join(problems)
        return reasons

    def folders(self) -> list[Path]:
        """Returns every folder that stands where an artifact stands, sound or not, sorted."""
        return sorted(path for path in self.root.glob("[!.]*/*/") if not path.name.startswith("."))

    def resolve(self, prefix: str, *, parts: bool = True) -> Artifact:
        """Returns the one artifact whose version, or whose `stage/version`, begins with `prefix`; `parts` is that of `open`.

        Raises:
            InputError: none or several begin so, or the one that does is damaged.
        """
        stage, _, digits = prefix.rpartition("/")
        matches = sorted(
            address
            for address in self._addresses()
            if address[1].startswith(digits) and stage in ("", address[0]) and digits
        )
        if not matches:
            raise InputError(
                f"no artifact in {self.root}{behind()} begins with {prefix!r}", "`graphmill ls` lists them"
            )
        if len(matches) > 1:
            names = ", ".join(f"{name}/{short(version)}" for name, version in matches[:6])
            raise InputError(
                f"{prefix!r} is the beginning of {len(matches)} artifacts: {names}",
                f"give more digits (up to {SHORT_DIGITS} are shown), or STAGE/DIGITS",
            )
        return self.open(*matches[0], parts=parts)

    def _addresses(self) -> set[Address]:
        """Returns the address of everything that stands in the home or is in the object store."""
        return {(path.parent.name, path.name) for path in self.folders()} | set(stored_addresses())

    def writer(self, stage: str, version: str, threads: int = 1, *, replaces: bool = False) -> Writer:
        """Returns a writer for one artifact, to be used as a context manager; see `Writer`."""
        return Writer(self.root, stage, version, threads, replaces=replaces)

    def lease(self, *addresses: Address) -> AbstractContextManager[None]:
        """Keeps artifacts, present or not yet, from being collected while a block runs; see `Leases.hold`.

        `materialize` leases the artifacts that it builds and reads. A job that goes from one artifact to the next holds all of them for its
        whole life, so that nothing goes between two steps.
        """
        return self._leased_in_both(addresses) if store_url() else self.leases.hold(*addresses)

    @contextmanager
    def _leased_in_both(self, addresses: Sequence[Address]) -> Iterator[None]:
        """Holds leases in the home and in the object store."""
        from graphmill.assets.storage.remote.leases import hold_remote

        with self.leases.hold(*addresses), hold_remote(addresses):
            yield

    def discard(
        self, stage: str, version: str, may: Callable[[], bool] = lambda: True, *, whole: Address | None = None
    ) -> bool:
        """Removes an artifact of the home, sound or not, in one step: it is never seen half removed. An absent one is not an error.

        Args:
            stage, version: the address.
            may: function that is called last, when no process holds a lease on the artifact or can take one; False leaves the artifact.
            whole: the artifact that it is a part of, whose leases cover it; None if it is not a part.

        Returns:
            False if it was left: a process holds a lease, or `may` returned False.
        """
        covered = [(stage, version)] if whole is None else [whole, (stage, version)]
        # The leases are needed for the renaming only; removing the bytes may take long, and no process waits for it.
        with closing(Staging(self.root)) as staging, ExitStack() as taken, suppress(FileNotFoundError):
            staging.open()
            if not all(taken.enter_context(self.leases.alone(each)) for each in covered) or not may():
                return False
            os.rename(self.root / stage / version, staging.second_folder())
        return True

    def sweep(self) -> list[str]:
        """Removes the files of dead writers in the staging area. Returns their ids. A writer does this by itself."""
        return sweep(self.root / STAGING)


def behind() -> str:
    """Returns the words that name the object store behind a home, "" if there is none."""
    return f" or in {store_url()}" if store_url() else ""
