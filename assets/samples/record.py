"""One sampled mini-batch as consecutive bytes, as the `samples` stage stores it.

    header      i64[8 + 4 layers]: MAGIC, bytes without padding, epoch, step, seeds, layers, bytes per id, extras;
                then for each block from the input side: num_dst, num_src, edges, bytes per degree
    input ids   ids[num_src of block 0]; the sources of every block are a prefix of it, and so are the seeds
    each block  degrees u8, u16 or u32[num_dst] (the narrowest that holds the largest), indices i32[edges],
                and if the sampler gave them weight f32[edges], edge_type u8[edges], edge_id i64[edges], share f32[edges]

Every array starts at a multiple of 8 bytes and the record is padded with zeros to a multiple of 4,096, so a record that starts
on a page is read by one sequential (also O_DIRECT) read and its arrays are used where they lie. Transposes and GCN
coefficients are not stored: both follow from the record and are made when it is loaded.

Source: DiskGNN, section 4 (a graph sample is stored as its node ids and one adjacency per layer).
Bytes: 4 per edge, 4 per input (8 in graphs of 2^31 nodes), 1 or 2 per destination of each layer.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphmill.assets.storage.files.records import ArrayPlace, fill_record, lay_out, narrow_degrees
from graphmill.kernels.errors import InputError
from graphmill.kernels.types import Array, BatchKey, Block

MAGIC = int.from_bytes(b"GMBATCH1", "little")
HEAD_WORDS, LAYER_WORDS = 8, 4
EXTRAS = (
    ("weight", np.dtype(np.float32)),
    ("edge_type", np.dtype(np.uint8)),
    ("edge_id", np.dtype(np.int64)),
    ("share", np.dtype(np.float32)),
)


class Record(NamedTuple):
    """A decoded batch.

    Attributes:
        epoch, step: sampling epoch, and place of the batch in it.
        seeds: ids[b] global.
        blocks: blocks as the sampler made them, without transposes.
    """

    epoch: int
    step: int
    seeds: Array
    blocks: tuple[Block, ...]


def encode(key: BatchKey, blocks: Sequence[Block]) -> Array:
    """Returns u8[n], n a multiple of 4,096: the record of one batch, which depends only on the arguments.

    Args:
        key: key that names the batch; its stream is not stored.
        blocks: blocks of a sampler, nothing pruned. Transposes are left out.
    """
    degrees = [_degrees(block) for block in blocks]
    extras = [bit for bit, (name, _) in enumerate(EXTRAS) if getattr(blocks[0], name) is not None]
    ids = blocks[0].src_ids
    assert all(np.array_equal(block.src_ids, ids[: block.num_src]) for block in blocks), "sources are no prefix"
    layers = [
        (block.num_dst, block.num_src, len(block.indices), each.itemsize)
        for block, each in zip(blocks, degrees, strict=True)
    ]
    head = [
        MAGIC,
        0,
        key.epoch,
        key.step,
        blocks[-1].num_dst,
        len(blocks),
        ids.itemsize,
        sum(1 << bit for bit in extras),
    ]
    words = np.array([*head, *(word for layer in layers for word in layer)], "<i8")
    values = [words, ids]
    for block, each in zip(blocks, degrees, strict=True):
        values += [each, block.indices, *(getattr(block, EXTRAS[bit][0]) for bit in extras)]
    return fill_record(list(_places(words)), values)


def decode(record: Array) -> Record:
    """Returns the batch of a record; its arrays are views of the record if their type allows it.

    Args:
        record: u8[n], starting at a multiple of 8 bytes; may be longer than the record.

    Raises:
        InputError: the bytes are not a sound record; the arrays of a sound one lie inside it.
    """
    words = _words(record)
    _, _, epoch, step, num_seeds, num_layers, _, extras = (int(word) for word in words[:HEAD_WORDS])
    arrays = iter([place.of(record) for place in _places(words)][1:])
    ids, names = next(arrays), [name for bit, (name, _) in enumerate(EXTRAS) if extras >> bit & 1]
    blocks = []
    for num_dst, num_src, num_edges, _ in _layers(words):
        degrees, indices = next(arrays), next(arrays)
        end = np.cumsum(degrees, dtype=np.int64)
        if (end[-1] if num_dst else 0) != num_edges:
            raise _broken(f"a block's degrees add up to {end[-1] if num_dst else 0}, not to its {num_edges} edges")
        end = end.astype(np.int32)
        start = end - degrees.astype(np.int32)  # an array of its own: pruning writes to the ends
        more: dict[str, Any] = {name: next(arrays) for name in names}
        block = Block(
            num_dst=num_dst, num_src=num_src, start=start, end=end, indices=indices, src_ids=ids[:num_src], **more
        )
        blocks.append(block)
    assert len(blocks) == num_layers
    return Record(epoch, step, ids[:num_seeds], tuple(blocks))


def input_ids_place(head: Array) -> tuple[int, int, str]:
    """Returns (first byte, length, dtype) of the input ids in a record, from its first bytes u8[at least the header]."""
    words = _words(head, whole=False)
    place = list(_places(words))[1]
    return place.offset, place.length, place.dtype.name


def _degrees(block: Block) -> Array:
    """Returns the row lengths in the narrowest type; the rows must lie one after the other."""
    degrees = block.end - block.start
    assert block.dst_pos is None and block.self_weight is None, "only what a sampler makes can be stored"
    whole = int(degrees.sum(dtype=np.int64)) == len(block.indices)
    assert whole and (len(degrees) == 0 or (block.start[0] == 0 and np.array_equal(block.start[1:], block.end[:-1])))
    return narrow_degrees(degrees)


def _layers(words: Array) -> list[tuple[int, int, int, int]]:
    rows = words[HEAD_WORDS:].reshape(-1, LAYER_WORDS)
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in rows]


def _places(words: Array) -> Iterator[ArrayPlace]:
    """Returns the place of each array: header, input ids, and those of each block."""
    layers = _layers(words)
    chosen = [dtype for bit, (_, dtype) in enumerate(EXTRAS) if int(words[7]) >> bit & 1]
    shapes = [(np.dtype("<i8"), len(words)), (np.dtype(np.int32 if words[6] == 4 else np.int64), layers[0][1])]
    for num_dst, _, num_edges, width in layers:
        shapes += [(np.dtype(f"<u{width}"), num_dst), (np.dtype(np.int32), num_edges)]
        shapes += [(dtype, num_edges) for dtype in chosen]
    return lay_out(shapes)


def _words(record: Array, whole: bool = True) -> Array:
    """Returns the header's words after checking that all of them are valid."""
    if len(record) < 8 * HEAD_WORDS:
        raise _broken(f"it has only {len(record)} bytes")
    words = record[: 8 * HEAD_WORDS].view("<i8")
    num_layers = int(words[5])
    if words[0] != MAGIC or not 0 < num_layers <= (len(record) // 8 - HEAD_WORDS) // LAYER_WORDS:
        raise _broken("it does not begin with a header")
    words = record[: 8 * (HEAD_WORDS + LAYER_WORDS * num_layers)].view("<i8")
    layers, ids_bytes, num_seeds = _layers(words), int(words[6]), int(words[4])
    chain = [layers[0][1], *(layer[0] for layer in layers)], [*(layer[1] for layer in layers), num_seeds]
    sound = chain[0] == chain[1] and all(
        0 <= num_dst <= num_src < 2**31 and 0 <= num_edges < 2**31 and width in (1, 2, 4)
        for num_dst, num_src, num_edges, width in layers
    )
    if not sound or ids_bytes not in (4, 8) or not 0 <= int(words[7]) < 1 << len(EXTRAS):
        raise _broken("its header contradicts itself")
    *_, last = _places(words)
    if last.end != words[1] or (whole and words[1] > len(record)):
        raise _broken(f"its header says {int(words[1])} bytes")
    return words


def _broken(what: str) -> InputError:
    return InputError(f"this is no stored mini-batch: {what}", "`graphmill verify` tells what is damaged")
