"""The objects below a URL: a thin client over obstore, whose errors become one message each.

Requests that fail for a moment (a refused connection, a timeout, a server error) are repeated by the client with growing pauses, a bounded
number of times. A store is known by what obstore reads from the URL and from its usual variables: AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, AWS_ALLOW_HTTP.
"""

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from graphmill.assets.storage.names.home import STORE_VARIABLE, store_url
from graphmill.assets.storage.system.filesystem import make_folder
from graphmill.kernels import environment
from graphmill.kernels.errors import InputError, install_extra

RETRIES, RETRY_SECONDS = 5, 60
"""How often a failed request is repeated, and the seconds after which it is not repeated any more."""
PART_BYTES, MOST_PARTS = 8 << 20, 9_000
"""Bytes of one request of a large upload, and how many S3 takes of them (10,000)."""
DOCUMENT_BYTES = 64 << 20
"""Most bytes of an entry or lease that are read: an object may be of any size."""
CLOCK = "clock"
UNFINISHED = re.compile(r"#[0-9]+$")
"""Ends of the names of files that obstore is writing."""


@dataclass(frozen=True)
class Stored:
    """An object that a listing names: its key, its bytes, and when it was written by the clock of the server."""

    key: str
    num_bytes: int
    written: datetime


class Objects:
    """The objects below a URL.

    Args:
        url: a URL that obstore can open: s3://BUCKET/PREFIX, gs://, az://, file:///FOLDER.

    Raises:
        InputError: obstore is not installed, or it cannot open the URL.
    """

    def __init__(self, url: str):
        self.url = url
        try:
            import obstore
            from obstore.store import from_url
        except ModuleNotFoundError as error:
            remedy = f"install it: {install_extra('object-store')}; or unset GRAPHMILL_STORE"
            raise InputError(f"{STORE_VARIABLE} = {url} needs the package {error.name}", remedy) from error
        self._api, place = obstore, urlparse(url)
        self._folder = Path(unquote(place.path)) if place.scheme == "file" else None
        if self._folder is not None:
            make_folder(self._folder)
        elif place.scheme in ("memory", "http", "https", ""):
            remedy = "give s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER"
            raise InputError(f"{STORE_VARIABLE} = {url} is not a store that machines can share", remedy)
        backoff: Any = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2}
        limits: Any = {"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS), "backoff": backoff}
        given: Any = {} if place.scheme == "file" else {"retry_config": limits}
        with self._telling():
            self._store = from_url(url, **given)

    def read_document(self, key: str) -> bytes | None:
        """Returns the content of an object that should be a document, of a longer one only its beginning; None if there is none."""
        return self.read_range(key, 0, DOCUMENT_BYTES)

    def read(self, key: str) -> bytes | None:
        """Returns the content of an object, None if there is none."""
        return self._if_there(lambda: bytes(self._api.get(self._store, key).bytes()))

    def read_range(self, key: str, start: int, end: int) -> bytes | None:
        """Returns bytes [start, end) of an object, fewer if it is shorter; None if there is none."""
        try:
            return self._if_there(lambda: bytes(self._api.get_range(self._store, key, start=start, end=end)))
        except InputError:
            # A range behind the last byte is an error of every store, with words of its own, and none of the store as a whole.
            found = self.find(key)
            if found is None or found.num_bytes > start:
                raise
            return b""

    def find(self, key: str) -> Stored | None:
        """Returns the facts about an object, None if there is none."""
        found = self._if_there(lambda: self._api.head(self._store, key))
        return None if found is None else Stored(key, found["size"], found["last_modified"])

    def write(self, key: str, data: bytes) -> None:
        """Writes an object in one step, over another of its name."""
        with self._telling():
            self._api.put(self._store, key, data, use_multipart=False)

    def create(self, key: str, data: bytes) -> bool:
        """Writes an object in one step unless there is one. Returns False if there is, which may be its own: a request is repeated if its
        answer is lost."""
        with self._telling():
            try:
                self._api.put(self._store, key, data, mode="create", use_multipart=False)
            except self._api.exceptions.AlreadyExistsError:
                return False
        return True

    def send(self, key: str, path: Path) -> None:
        """Writes the content of a file to an object, which is seen when it is whole."""
        with self._telling(), open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._api.put(self._store, key, file, chunk_size=max(PART_BYTES, -(-size // MOST_PARTS)), max_concurrency=4)

    def listed(self, prefix: str) -> list[Stored]:
        """Returns all objects below a folder of keys, in the order of their names."""
        if self._folder is not None:
            return sorted(_files_below(self._folder, prefix), key=lambda each: each.key)
        with self._telling():
            found = [each for page in self._api.list(self._store, prefix) for each in page]
        return sorted(
            (Stored(each["path"], each["size"], each["last_modified"]) for each in found), key=lambda s: s.key
        )

    def remove(self, keys: Iterable[str]) -> None:
        """Removes objects; a missing one is not an error."""
        for key in keys:
            self._if_there(lambda key=key: self._api.delete(self._store, key))

    def now(self) -> datetime:
        """Returns the time of the server, by an object that is written and removed again: one clock tells the ages of all objects."""
        key = f"{CLOCK}/{uuid.uuid4().hex}"
        self.write(key, b"")
        try:
            found = self.find(key)
        finally:
            self.remove([key])
        assert found is not None, "it was just written"
        return found.written

    def _if_there(self, ask: Any) -> Any:
        """Returns the answer to a request, None if the object does not exist."""
        try:
            with self._telling():
                return ask()
        except FileNotFoundError:
            return None

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turns the client's errors into an `InputError`; a missing object stays a `FileNotFoundError`."""
        try:
            yield
        except Exception as error:
            if isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error):
                raise
            if isinstance(error, OSError) and error.errno is not None:
                raise  # of a file on this machine
            base = self._api.exceptions.BaseError
            if not isinstance(error, (base, OSError, ValueError)) or isinstance(error, InputError):
                raise
            raise refused(self.url, error) from error


def _files_below(root: Path, prefix: str) -> Iterator[Stored]:
    """Yields the files of a store that is a folder; obstore ends at the first name that it does not take, whoever made the file."""
    seen: set[tuple[int, int]] = set()
    for folder, inner, names in os.walk(root / prefix, followlinks=True):
        found = os.stat(folder)
        if (found.st_dev, found.st_ino) in seen:  # a link leads back
            inner.clear()
            continue
        seen.add((found.st_dev, found.st_ino))
        for name in names:
            path = Path(folder, name)
            key = path.relative_to(root).as_posix()
            if UNFINISHED.search(name) or not key.isprintable():
                continue
            with suppress(OSError):  # removed meanwhile, or a link to nothing
                status = path.stat()
                yield Stored(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))


def creates_once(objects: Objects) -> bool:
    """Returns whether a store refuses to create an object that exists, by which of two writers one wins."""
    key = f"{CLOCK}/{uuid.uuid4().hex}"
    first = objects.create(key, b"")
    try:
        return first and not objects.create(key, b"")
    finally:
        objects.remove([key])


CAUSES = (
    (
        ("incorrectly configured region", "PermanentRedirect", "AuthorizationHeaderMalformed"),
        "its bucket is in another region",
        "set AWS_REGION to the region of the bucket",
    ),
    (("NoSuchBucket",), "its bucket does not exist", f"create the bucket, or correct {STORE_VARIABLE}"),
    (
        ("169.254.169.254", "MissingCredentials", "NoCredentials"),
        "there are no credentials",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    ),
    (
        ("URL scheme is not allowed", "BadScheme"),
        "its endpoint is http, which is not encrypted",
        "set AWS_ALLOW_HTTP=true, or give an https endpoint in AWS_ENDPOINT_URL",
    ),
    (
        ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403 Forbidden", "401 Unauthorized"),
        "it refuses the credentials",
        "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give their user the right to read, write and list",
    ),
    (
        ("error sending request", "dns error", "Connect", "timed out", "TimedOut"),
        "its endpoint does not answer",
        "start the server, or correct AWS_ENDPOINT_URL; then run the same command again",
    ),
    (
        ("No space left on device", "Disk quota exceeded", "XMinioStorageFull"),
        "it is full",
        "free space there: graphmill gc",
    ),
)
"""What an error's text says, the finding in words, and the remedy."""


def refused(url: str, error: BaseException) -> InputError:
    """Returns the `InputError` for an error of the client."""
    text = str(error)
    for words, problem, remedy in CAUSES:
        if any(each in text for each in words):
            return InputError(f"the object store {url} cannot be used: {problem}", remedy)
    first = text.partition("\n")[0][:300]
    if "invalid path" in text:  # a listing ends there
        remedy = "remove the object of this name, which graphmill did not write, with the program that made it"
        return InputError(f"the object store {url} cannot be used: {first}", remedy)
    return InputError(f"the object store {url} cannot be used: {first}", f"correct {STORE_VARIABLE} or the store")


_OPENED: dict[tuple[Any, ...], Objects] = {}


def open_objects(url: str) -> Objects:
    """Returns the objects below a URL, opened once per process."""
    settings = environment.with_prefixes(environment.CREDENTIALS)
    key = (os.getpid(), url, settings)
    if key not in _OPENED:
        _OPENED[key] = Objects(url)
    return _OPENED[key]


def require_objects() -> Objects:
    """Returns the objects of `$GRAPHMILL_STORE`, which is set."""
    url = store_url()
    assert url, f"{STORE_VARIABLE} is not set"
    return open_objects(url)
