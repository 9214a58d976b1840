"""The artifacts of one home: `$GRAPHMILL_HOME/store/<stage>/<version>/`, content-addressed, written once, safe against crashes.

A version names the content of an artifact (`assets/storage/names/version.py`), so equal work is shared by every pipeline that asks for it.
What the home lacks is found in the object store behind it, if there is one (assets/storage/local/backend.py).
Files are the only state, without an index or a database that two processes could fight over. See `assets/storage/local/writer.py` for how
artifacts are published and `assets/storage/local/artifact.py` for their contents. Reading needs NumPy and xxhash only.
"""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from graphmill.assets.storage.local.artifact import Artifact, find_artifact, find_stored, read_artifact, stored_artifact
from graphmill.assets.storage.local.backend import NO_OBJECT_STORE, StoreBackend
from graphmill.assets.storage.local.leases import Leases
from graphmill.assets.storage.local.writer import STAGING, Staging, Writer, sweep
from graphmill.assets.storage.names.home import home_folder
from graphmill.assets.storage.names.manifest import Address, address_of, label_of, repair_remedy
from graphmill.assets.storage.names.version import SHORT_DIGITS
from graphmill.assets.storage.system.refused import unread
from graphmill.kernels.errors import InputError


class LocalStore:
    """All artifacts of one home folder, and of what stands behind it. Opening a store writes nothing.

    Attributes:
        backend: what stands behind the home: nothing, unless a `Store` was opened.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None):
        self.home = home_folder(home)
        self.root = self.home / "store"
        self.leases = Leases(self.home)
        self.backend: StoreBackend = NO_OBJECT_STORE

    @property
    def place(self) -> str:
        """The folder of the artifacts, and the object store behind it, for messages."""
        return f"{self.root} or in {self.backend.url}" if self.backend.url else str(self.root)

    def find(self, stage: str, version: str) -> Artifact | None:
        """Returns the artifact, or None when it or a part of it is absent or damaged: then it has to be built.

        One that only the object store has is known by its manifest; its files are fetched when they are first read.
        """
        path = self.root / stage / version
        artifact = find_artifact(path, self.backend) or find_stored(path, self.backend)
        return None if artifact is None or artifact.part_problems() else artifact

    def find_many(self, addresses: Sequence[Address]) -> list[Artifact | None]:
        """Finds the artifact of each address as `find` does; those that the home lacks are asked for by several requests at a time."""
        found = [None if self._lacks(each) else self.find(*each) for each in addresses]
        lacking = [each for each, artifact in zip(addresses, found, strict=True) if artifact is None]
        stored = {each.address: each for each in self._stored(lacking) if not each.part_problems()}
        return [artifact or stored.get(each) for each, artifact in zip(addresses, found, strict=True)]

    def open(self, stage: str, version: str, *, parts: bool = True) -> Artifact:
        """Returns the artifact after checking its manifest and sizes.

        Args:
            parts: whether all of its parts have to be there, too.

        Raises:
            InputError: it is absent or damaged; the text says how.
        """
        path = self.root / stage / version
        try:
            artifact = read_artifact(path, self.backend)
        except (FileNotFoundError, ValueError) as error:
            artifact = find_stored(path, self.backend)
            if artifact is None and isinstance(error, FileNotFoundError):
                have = sum(artifact.stage == stage for artifact in self.artifacts())
                raise InputError(
                    f"{label_of((stage, version))} is not in {self.place}, which has {have} versions of {stage}",
                    "build it (`graphmill build PIPELINE`), or set GRAPHMILL_HOME to the home that has it",
                ) from None
            if artifact is None:
                problem = f"{label_of((stage, version))} is damaged: {error}"
                raise InputError(problem, repair_remedy((stage, version))) from error
        for name in artifact.parts if parts else ():
            artifact.open_part(name)
        return artifact

    def has(self, stage: str, version: str) -> bool:
        """Returns whether an artifact stands in the home, sound or not, or is in the object store; reads no file of it."""
        return (self.root / stage / version).exists() or self.backend.find((stage, version)) is not None

    def stored_only(self, stage: str = "") -> list[Artifact]:
        """Returns the artifacts, of one stage or of all, that the object store has and the home lacks; their files are not fetched."""
        return self._stored(sorted(filter(self._lacks, self.backend.addresses(stage))))

    def artifacts(self, stage: str = "") -> list[Artifact]:
        """Returns all sound artifacts, of one stage or of all, by stage and version; those that cannot be read now are left out."""
        found = []
        for path in (each for each in self.folders() if stage in ("", each.parent.name)):
            with suppress(OSError):
                found.append(self.find(*address_of(path)))
        return [artifact for artifact in found if artifact is not None]

    def unread(self) -> dict[Path, str]:
        """Returns the folders of artifacts that cannot be read now, sound or not, with the reason."""
        found = {}
        for path in self.folders():
            try:
                self.find(*address_of(path))
            except OSError as error:
                found[path] = unread(error)
        return found

    def damaged(self) -> dict[Path, str]:
        """Returns the folders that hold no sound artifact, with the reason."""
        reasons = {}
        for path in self.folders():
            try:
                problems = read_artifact(path, self.backend).part_problems()
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
            raise InputError(f"no artifact in {self.place} begins with {prefix!r}", "`graphmill ls` lists them")
        if len(matches) > 1:
            names = ", ".join(map(label_of, matches[:6]))
            problem = f"{prefix!r} is the beginning of {len(matches)} artifacts: {names}"
            raise InputError(problem, f"give more digits (up to {SHORT_DIGITS} are shown), or STAGE/DIGITS")
        return self.open(*matches[0], parts=parts)

    def _addresses(self) -> set[Address]:
        """Returns the address of everything that stands in the home or is in the object store."""
        return {*map(address_of, self.folders()), *self.backend.addresses()}

    def _lacks(self, address: Address) -> bool:
        """Returns whether only the object store can have an artifact."""
        return bool(self.backend.url) and not self.root.joinpath(*address).is_dir()

    def _stored(self, addresses: Collection[Address]) -> list[Artifact]:
        """Returns the artifacts of the object store by their manifests; those that vanished or have damaged entries are left out."""
        found = self.backend.find_many(addresses)
        return [stored_artifact(self.root.joinpath(*each.address), each, self.backend) for each in found]

    def writer(self, stage: str, version: str, threads: int = 1, *, replaces: bool = False) -> Writer:
        """Returns a writer for one artifact, to be used as a context manager; see `Writer`."""
        return Writer(self.root, self.backend, (stage, version), threads, replaces=replaces)

    @contextmanager
    def lease(self, *addresses: Address) -> Iterator[None]:
        """Keeps artifacts, present or not yet, from being collected while a block runs; see `Leases.hold`.

        `materialize` leases the artifacts that it builds and reads. A job that goes from one artifact to the next holds all of them for its
        whole life, so that nothing goes between two steps.
        """
        with self.leases.hold(*addresses), self.backend.hold(addresses):
            yield

    def discard(
        self, stage: str, version: str, may: Callable[[], bool] = lambda: True, *, whole: Address | None = None
    ) -> bool:
        """Removes an artifact of the home, sound or not, in one step: it is never seen half removed. An absent one is not an error.

        Args:
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
