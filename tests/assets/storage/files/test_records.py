"""A record of a file is read whole and compared; what is wrong with it is said."""

from pathlib import Path

import pytest
import xxhash

from graphmill.assets.storage.files.records import read_record
from graphmill.kernels.errors import InputError

CONTENT = bytes(range(200))


def test_a_record_is_its_range(tmp_path: Path):
    path = tmp_path / "records"
    path.write_bytes(CONTENT)
    digest = xxhash.xxh3_64_intdigest(CONTENT[50:150])
    assert read_record(path, 50, 100, digest, lambda: "record 3 of x/1").tobytes() == CONTENT[50:150]
    assert read_record(path, 200, 0, None, lambda: "record 4 of x/1").tobytes() == b""


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "records is missing"),
        (CONTENT[:140], "records ends 10 bytes too early"),
        (CONTENT[:49], "records ends 100 bytes too early"),
        (CONTENT[:149] + b"!", "bytes 50 to 149 of .*records do not match their digest"),
    ],
)
def test_damage_is_told_apart(tmp_path: Path, content, problem):
    path = tmp_path / "records"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=rf"^record 3 of x/1 is damaged: .*{problem}"):
        read_record(path, 50, 100, xxhash.xxh3_64_intdigest(CONTENT[50:150]), lambda: "record 3 of x/1")
