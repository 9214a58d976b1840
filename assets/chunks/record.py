"""One `ChunkStep` as consecutive bytes, as the `chunks` stage stores it.

    header       i64[13 + 2 peers]: MAGIC, bytes without padding, part, step, destinations, edges, sources, loads, transition rows,
                 bytes per id, whether destinations have rows, bytes per degree, peers; then (peer, rows) of each entry of `fetch`
    dst_ids      ids[v]
    degrees      u8, u16 or u32[v], the narrowest that holds the largest
    indices      i32[edges]
    src_ids      ids[num_src]
    dst_pos      i32[v], if destinations have rows
    load_rows    i32[c]; the loaded nodes are src_ids[load_rows]
    peer rows, own rows     i32[f] each, for each entry of `fetch`

Every array starts at a multiple of 8 bytes and the record is padded with zeros to a multiple of 4,096, so a record that starts on a page is
read by one sequential (also O_DIRECT) read, and its arrays are used where they lie. Transposes and edge weights are not stored: both follow
from the record.

Bytes: 4 per edge, 4 per buffer row, 4 per row that is loaded, 8 per row that is fetched, 9 per destination (ids take 8 from 2^31 nodes on).
"""

from collections.abc import Iterator

import numpy as np

from graphmill.assets.storage.files.records import ArrayPlace, fill_record, lay_out, narrow_degrees
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, Block, ChunkStep

MAGIC = int.from_bytes(b"GMCHUNK1", "little")
HEAD_WORDS = 13
INT32 = np.dtype(np.int32)


def encode(step: ChunkStep) -> Array:
    """Returns u8[n], n a multiple of 4,096: the record of one step of one device, which depends only on the argument."""
    block = step.block
    degrees = narrow_degrees(block.end - block.start)
    counts = block.num_dst, len(block.indices), block.num_src, len(step.load_rows), step.num_transition
    forms = block.src_ids.itemsize, int(block.dst_pos is not None), degrees.itemsize
    head = [MAGIC, 0, step.part, step.step, *counts, *forms, len(step.fetch)]
    words = np.array([*head, *(word for peer, rows, _ in step.fetch for word in (peer, len(rows)))], "<i8")
    values = [words, step.dst_ids, degrees, block.indices, block.src_ids]
    values += [] if block.dst_pos is None else [block.dst_pos]
    values += [step.load_rows, *(rows for _, *both in step.fetch for rows in both)]
    return fill_record(list(_places(words)), values)


def decode(record: Array) -> ChunkStep:
    """Returns the step of a record; its arrays are views of the record if their type allows it.

    Args:
        record: u8[n], starting at a multiple of 8 bytes; may be longer than the record.

    Raises:
        InputError: the bytes are not a sound record; the arrays of a sound one lie inside it.
    """
    words = _words(record)
    _, _, part, step, num_dst, num_edges, num_src, _, num_transition = (int(word) for word in words[:9])
    arrays = iter([place.of(record) for place in _places(words)][1:])
    dst_ids, degrees, indices, src_ids = (next(arrays) for _ in range(4))
    end = np.cumsum(degrees, dtype=np.int64)
    if (end[-1] if num_dst else 0) != num_edges:
        raise _broken(f"its degrees add up to {end[-1] if num_dst else 0}, not to its {num_edges} edges")
    end = end.astype(np.int32)
    block = Block(
        num_dst=num_dst,
        num_src=num_src,
        start=end - degrees.astype(np.int32),
        end=end,
        indices=indices,
        src_ids=src_ids,
        dst_pos=next(arrays) if words[10] else None,
    )
    load_rows = next(arrays)
    if len(load_rows) and not 0 <= load_rows.min() <= load_rows.max() < num_src:
        raise _broken("it loads into a row outside the buffer")
    peers = [int(peer) for peer in words[HEAD_WORDS::2]]
    return ChunkStep(
        part=part,
        step=step,
        dst_ids=dst_ids,
        block=block,
        load_ids=src_ids[load_rows],
        load_rows=load_rows,
        fetch=tuple((peer, next(arrays), next(arrays)) for peer in peers),
        num_transition=num_transition,
    )


def _places(words: Array) -> Iterator[ArrayPlace]:
    num_dst, num_edges, num_src, num_load = (int(word) for word in words[4:8])
    ids, width = np.dtype(np.int32 if words[9] == 4 else np.int64), np.dtype(f"<u{int(words[11])}")
    shapes = [(np.dtype("<i8"), len(words)), (ids, num_dst), (width, num_dst), (INT32, num_edges), (ids, num_src)]
    shapes += [(INT32, num_dst)] if words[10] else []
    shapes += [(INT32, num_load)]
    shapes += [(INT32, int(count)) for count in words[HEAD_WORDS + 1 :: 2] for _ in range(2)]
    return lay_out(shapes)


def _words(record: Array) -> Array:
    """Returns the header's words after checking that all of them are valid."""
    if len(record) < 8 * HEAD_WORDS:
        raise _broken(f"it has only {len(record)} bytes")
    words = record[: 8 * HEAD_WORDS].view("<i8")
    num_peers = int(words[12])
    if words[0] != MAGIC or not 0 <= num_peers <= (len(record) // 8 - HEAD_WORDS) // 2:
        raise _broken("it does not begin with a header")
    words = record[: 8 * (HEAD_WORDS + 2 * num_peers)].view("<i8")
    counts = [int(word) for word in (*words[2:9], *words[HEAD_WORDS:])]
    sound = all(0 <= count < 2**31 for count in counts) and words[10] in (0, 1) and words[11] in (1, 2, 4)
    if not sound or words[9] not in (4, 8):
        raise _broken("its header contradicts itself")
    *_, last = _places(words)
    if last.end != words[1] or words[1] > len(record):
        raise _broken(f"its header says {int(words[1])} bytes")
    return words


def _broken(what: str) -> InputError:
    return InputError(f"this is no stored step: {what}", "`graphmill verify` tells what is damaged")
