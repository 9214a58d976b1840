# The native module as type checkers see it; the bind.cpp of each room of kernels/native/ has its names. Use the front doors, not this.
from typing import Any

from graphmill.kernels.types import Array

VARIABLE: str
LEVELS: dict[str, set[str]]
BUILD: str
BUILD_FILE: str

def processor_flags() -> set[str]: ...
def choose_build(builds: set[str], flags: set[str], level: str = "") -> str: ...

class Sampler32:
    def __init__(
        self,
        indptr: Array,
        indices: Array,
        fanouts: list[int],
        replace: bool,
        threads: int,
        fused: bool = True,
        table: Array | None = None,
        support: Array | None = None,
        walks: tuple[int, int, int] = (0, 0, 0),
        edge_types: Array | None = None,
        by_relation: list[list[int]] = [],
    ) -> None: ...
    def sample(
        self, batch_key: int, seeds: Array, transposed: int, positions: bool
    ) -> tuple[Array, list[tuple[Any, ...]]]: ...
    def read_ahead(self) -> None: ...
    def take_visits(self, counts: Array) -> None: ...
    @property
    def scratch_bytes(self) -> int: ...
    @property
    def counts_visits(self) -> bool: ...

class HashedSampler32(Sampler32): ...
class Sampler64(Sampler32): ...
class HashedSampler64(Sampler32): ...

class Renamer32:
    def __init__(self, num_nodes: int) -> None: ...
    def begin(self, seeds: Array) -> None: ...
    def nodes(self) -> Array: ...
    def name(self, order: Array | None, counts: Array, sources: Array, end: Array) -> tuple[Array, Array]: ...

class Renamer64(Renamer32): ...

def draw_rows(
    indptr: Array,
    indices: Array,
    place: tuple[int, int, int],
    edge_types: Array | None,
    table: Array | None,
    support: Array | None,
    nodes: Array,
    layer_key: int,
    fanout: int,
    by_relation: list[int],
    replace: bool,
    positions: bool,
) -> tuple[Array, Array, Array | None, Array | None]: ...

class TemporalSampler32:
    def __init__(
        self,
        indptr: Array,
        indices: Array,
        edge_times: Array,
        fanouts: list[int],
        replace: bool,
        recent: bool,
        window: float,
        edge_types: Array | None = None,
        by_relation: list[list[int]] = [],
        table: Array | None = None,
        support: Array | None = None,
        empty: int = 0,
    ) -> None: ...
    def sample(
        self, batch_key: int, seeds: Array, times: Array, transposed: int, positions: bool
    ) -> tuple[Array, Array, list[tuple[Any, ...]]]: ...
    def read_ahead(self) -> None: ...
    @property
    def scratch_bytes(self) -> int: ...

class TemporalSampler64(TemporalSampler32): ...

def alias_fault(
    indptr: Array, indices: Array, weights: Array, of_nodes: bool, refuse_empty: bool, threads: int
) -> tuple[int, int] | None: ...
def alias_tables(
    indptr: Array,
    indices: Array,
    weights: Array,
    of_nodes: bool,
    uniform: bool,
    begin: int,
    end: int,
    table: Array,
    support: Array,
    threads: int,
) -> None: ...
def choose(row_key: int, degree: int, taken: int, replace: bool, anywhere: bool) -> Array: ...
def absorb_ids(key: int, ids: Array, out: Array, threads: int) -> None: ...
def normal_int(key: int, ids: Array, out: Array, threads: int) -> None: ...
def random_gather(indptr: Array, indices: Array, dst_ids: Array, positions: Array, map: Array, threads: int) -> int: ...
def row_traffic(table: Array, ids: Array, out: Array, threads: int) -> float: ...
def transpose(num_src: int, start: Array, end: Array, indices: Array) -> tuple[Array, Array, Array]: ...
def gather(table: Array, node_ids: Array, out: Array, threads: int) -> None: ...
def gather_by_row(table: Array, node_ids: Array, row_of: Array, out: Array, threads: int) -> None: ...
def check_slots(slots: Array, counts: list[int], peer_counts: list[int], peer_stride: int) -> None: ...
def gather_tiered(
    dtype: Any,
    device: Array | None,
    host: Array | None,
    staged: Array | None,
    peers: list[Array],
    peer_stride: int,
    slots: Array,
    out: Array,
    threads: int,
) -> None: ...
def aggregate(
    start: Array,
    end: Array,
    indices: Array,
    dst_pos: Array | None,
    weight: Array | None,
    self_weight: Array | None,
    h: Array,
    out: Array,
    reduce: int,
    threads: int,
) -> None: ...
def aggregate_backward(
    start: Array,
    end: Array,
    dst_pos: Array | None,
    weight: Array | None,
    self_weight: Array | None,
    t_start: Array,
    t_edge: Array,
    t_dst: Array,
    t_weight: Array | None,
    grad: Array,
    out: Array,
    reduce: int,
    threads: int,
) -> None: ...
def edge_mask(
    start: Array,
    end: Array,
    indices: Array,
    dst_pos: Array | None,
    src_ids: Array,
    key: int,
    threshold: int,
    kept: Array,
    threads: int,
) -> None: ...
def attend(
    start: Array,
    end: Array,
    indices: Array,
    dst_pos: Array | None,
    z: Array,
    left: Array,
    right: Array,
    slope: float,
    kept: Array | None,
    scale: float,
    weight: Array | None,
    edge: Array | None,
    alpha: Array,
    out: Array,
    threads: int,
) -> None: ...
def attend_backward(
    start: Array,
    end: Array,
    indices: Array,
    dst_pos: Array | None,
    t_start: Array,
    t_edge: Array,
    t_dst: Array,
    z: Array,
    left: Array,
    right: Array,
    slope: float,
    kept: Array | None,
    scale: float,
    weight: Array | None,
    edge: Array | None,
    alpha: Array,
    grad: Array,
    grad_score: Array,
    grad_z: Array,
    grad_left: Array,
    grad_right: Array,
    threads: int,
) -> None: ...
def edge_messages(
    start: Array,
    end: Array,
    indices: Array,
    place: Array,
    weight: Array | None,
    h: Array,
    rows: Array,
    matrix: Array,
    bias: Array,
    active: Array | None,
    out: Array,
    threads: int,
) -> None: ...
def edge_messages_backward(
    start: Array,
    end: Array,
    place: Array,
    weight: Array | None,
    t_start: Array | None,
    t_edge: Array | None,
    t_dst: Array | None,
    rows: Array,
    active: Array,
    grad: Array,
    grad_h: Array | None,
    grad_map: Array,
    threads: int,
) -> None: ...
def dropout(x: Array, node_ids: Array, key: int, threshold: int, out: Array, threads: int) -> None: ...
def relu_dropout(x: Array, bias: Array | None, node_ids: Array, key: int, threshold: int, threads: int) -> None: ...
def relu_dropout_backward(result: Array, grad: Array, threshold: int, out: Array, threads: int) -> None: ...
def gcn_weights(
    start: Array,
    end: Array,
    indices: Array,
    dst_in: Array,
    dst_out: Array,
    src_out: Array,
    sampled: bool,
    weight: Array,
    self_weight: Array,
) -> None: ...
def build_csc32(
    src: Array, dst: Array, num_nodes: int, undirected: bool, merge: bool, drop_loops: bool, threads: int
) -> tuple[Array, Array, Array, Array, int, int]: ...
def build_csc64(
    src: Array, dst: Array, num_nodes: int, undirected: bool, merge: bool, drop_loops: bool, threads: int
) -> tuple[Array, Array, Array, Array, int, int]: ...

class PageReader:
    def __init__(
        self, depth: int, range_bytes: int, window_bytes: int, ring: bool, faults: tuple[int, int, int]
    ) -> None: ...
    def state(self) -> tuple[int, bool, int, int, int]: ...
    def read_rows(
        self,
        file: int,
        path: str,
        row_ids: Array,
        row_bytes: int,
        offset: int,
        merge: bool,
        out: Array,
        digests: Array | None,
    ) -> tuple[int, int, int]: ...
    def write_rows(
        self, file: int, path: str, row_ids: Array, row_bytes: int, offset: int, rows: Array
    ) -> tuple[int, int, int]: ...
    def read_pages(
        self,
        file: int,
        path: str,
        begin: int,
        end: int,
        needed: int,
        piece_bytes: int,
        memory: Array,
        digests: Array | None,
    ) -> int: ...

def ring_errno() -> int: ...
def page_digests(pages: Array, out: Array) -> None: ...
def gray_order(
    ptr: Array, ids: Array, row_bytes: int, page_bytes: int, window: int, piece: int, threads: int
) -> Array: ...
def minhash_order(ptr: Array, ids: Array, permutations: Array) -> Array: ...
def place_copies(
    ptr: Array,
    members: Array,
    num_rows: int,
    row_bytes: int,
    page_bytes: int,
    least_bytes: int,
    least_range: int,
    window: int,
    threads: int,
) -> tuple[Array, Array]: ...
def edge_order(
    rows: Array, src: Array, types: Array | None, ties: Array | None, num_rows: int, threads: int
) -> Array: ...
def deal_records32(
    records: Array,
    width: int,
    range_of: Array,
    shift: int,
    num_ranges: int,
    reverse: bool,
    drop_loops: bool,
    type_step: int,
) -> tuple[Array, list[int], int]: ...
def deal_records64(
    records: Array,
    width: int,
    range_of: Array,
    shift: int,
    num_ranges: int,
    reverse: bool,
    drop_loops: bool,
    type_step: int,
) -> tuple[Array, list[int], int]: ...
def sort_ends32(ends: Array, low: int, num_rows: int, merge: bool, threads: int) -> tuple[Array, Array, int]: ...
def sort_ends64(ends: Array, low: int, num_rows: int, merge: bool, threads: int) -> tuple[Array, Array, int]: ...
def text_columns(
    text: bytes | bytearray | memoryview,
    first: int,
    size: int,
    separator: int,
    comment: int,
    carriage: bool,
    num_fields: int,
    columns: list[tuple[int, bool]],
    threads: int,
) -> list[Array] | None: ...

class IdSet:
    def __init__(self) -> None: ...
    def add(self, ids: Array, side: int) -> None: ...
    def sorted(self) -> tuple[Array, int]: ...

def unique_places(ids: Array) -> tuple[Array, Array]: ...

class IdIndex32:
    def __init__(self, ids: Array) -> None: ...
    def look_up(self, given: Array, threads: int) -> Array: ...

class IdIndex64:
    def __init__(self, ids: Array) -> None: ...
    def look_up(self, given: Array, threads: int) -> Array: ...

def rmat(
    key: int,
    scramble_key: int,
    scrambled: bool,
    num_nodes: int,
    scale: int,
    top_left: int,
    top: int,
    all_but_last: int,
    first: int,
    src: Array,
    dst: Array,
    threads: int,
) -> None: ...
def sbm(
    key: int,
    scramble_key: int,
    num_nodes: int,
    classes: int,
    threshold: int,
    first: int,
    src: Array,
    dst: Array,
    threads: int,
) -> None: ...
def citations(
    key: int,
    scramble_key: int,
    scrambled: bool,
    num_nodes: int,
    classes: int,
    inside: int,
    copied: int,
    all_edges: int,
    first: int,
    src: Array,
    dst: Array,
    threads: int,
) -> None: ...
def cyclic_labels(scramble_key: int, scrambled: bool, classes: int, out: Array, threads: int) -> None: ...
def block_labels(scramble_key: int, scrambled: bool, classes: int, out: Array, threads: int) -> None: ...
def class_features(
    labels: Array, centroids: Array, key: int, noise: int, first: int, out: Array, threads: int
) -> None: ...
def touched_pages(
    ptr: Array, rows: Array, num_rows: int, row_bytes: int, pages: Array, ranges: Array, threads: int
) -> None: ...
def split_segment(
    ptr: Array, node_ids: Array, state: Array, most_cached: int, threads: int
) -> tuple[Array, Array, Array, Array, Array]: ...
def count_gaps(
    first_batch: int,
    ptr: Array,
    node_ids: Array,
    last: Array,
    gaps: Array,
    unit_batches: int,
    far: Array,
    uses: Array,
    threads: int,
) -> None: ...
def count_prefixes(ids: Array, ends: list[int], counts: Array) -> None: ...
def count_inputs_under(ids: Array, blocks: list[tuple[Any, ...]], counts: Array) -> None: ...
def push(indptr: Array, indices: Array, values: Array, sums: Array, low: int, num_nodes: int, threads: int) -> None: ...
def pack_range(
    rows: Array,
    first_row: int,
    ptr: Array,
    ids: Array,
    done: Array,
    memory: Array,
    starts: Array,
    used: Array,
    low: int,
    high: int,
) -> bool: ...
def push_weighted(
    indptr: Array,
    indices: Array,
    table: Array,
    rates: list[Array],
    fanouts: list[int],
    replace: bool,
    scale: float,
    sums: Array,
    low: int,
    num_nodes: int,
    first_node: int,
    threads: int,
) -> None: ...
def weighted_inclusions(row: Array, fanout: int, replace: bool) -> Array: ...
def pick_exponents(
    indptr: Array,
    rates: Array,
    fanout: int,
    replace: bool,
    scale: float,
    before: Array,
    after: Array,
    values: Array,
    threads: int,
) -> None: ...
def reach(sums: Array, before: Array, reciprocity: float, scale: float, out: Array, threads: int) -> None: ...
def place_rows(source: Array, source_rows: Array | None, out: Array, out_rows: Array | None, threads: int) -> None: ...
def add_rows(source: Array, source_rows: Array | None, out: Array, out_rows: Array | None, threads: int) -> None: ...
def take_rows(source: Array, rows: Array | None, out: Array, out_rows: Array | None, threads: int) -> None: ...
def ldg32(
    indptr: Array, indices: Array, order: Array, weights: Array, capacity: Array, num_parts: int, part_of: Array
) -> int: ...
def cut_matrix32(indptr: Array, indices: Array, part_of: Array, num_parts: int, counts: Array) -> None: ...
def replicas32(indptr: Array, indices: Array, by_part: Array, bounds: Array) -> int: ...
def ldg64(
    indptr: Array, indices: Array, order: Array, weights: Array, capacity: Array, num_parts: int, part_of: Array
) -> int: ...
def cut_matrix64(indptr: Array, indices: Array, part_of: Array, num_parts: int, counts: Array) -> None: ...
def replicas64(indptr: Array, indices: Array, by_part: Array, bounds: Array) -> int: ...
def join_clusters(
    indptr: Array,
    indices: Array,
    edge_weights: Array | None,
    weights: Array,
    most: int,
    roots: Array,
    cluster_of: Array,
    sizes: Array,
) -> int: ...
def count_edges(indptr: Array, indices: Array, cluster_of: Array, both: bool, counts: Array) -> None: ...
def scatter_edges(
    indptr: Array,
    indices: Array,
    edge_weights: Array | None,
    cluster_of: Array,
    both: bool,
    range_of: Array,
    next: Array,
    edges: Array,
) -> None: ...
def sort_edges(edges: Array, weighted: bool, first: int, distinct: Array) -> None: ...
def merge_edges(edges: Array, weighted: bool, indices: Array, weights: Array) -> None: ...
def neighbour_sets(
    indptr: Array, indices: Array, node_ids: Array, ptr: Array, self_term: bool, threads: int, out: Array
) -> None: ...
def shared_sets(bits: Array, threads: int) -> Array: ...
def set_sizes(bits: Array, threads: int) -> Array: ...
def set_overlaps(left: Array, right: Array, threads: int) -> Array: ...
def chain_overlaps(bits: Array, threads: int) -> Array: ...
def set_unions(bits: Array, rows: Array, threads: int, out: Array) -> None: ...
def assign_most(gains: Array) -> Array: ...
def improve_path(overlap: Array, order: Array, work: int) -> int: ...
def swap_changes(others: Array, own: Array, chosen: Array, step: int, threads: int) -> Array: ...
def listed_unions(indptr: Array, numbers: Array, column_of: Array, out: Array) -> None: ...
def part_graph(indptr: Array, indices: Array, nodes: Array, local: Array, threads: int) -> tuple[Array, Array]: ...
def reverse_cuthill_mckee(xadj: Array, adjacency: Array) -> Array: ...

class StepMaker32:
    def __init__(
        self, indptr: Array, indices: Array, part_of: Array, num_parts: int, self_term: bool, threads: int
    ) -> None: ...
    def next(self, dst: list[Array]) -> list[tuple[Any, ...]]: ...

class StepMaker64(StepMaker32): ...

def prune(blocks: list[tuple[Any, ...]], slots: list[Array], threads: int) -> tuple[list[tuple[Any, ...]], Array]: ...
def remove_in_edges(start: Array, end: Array, rows: Array) -> None: ...
def remove_from_csr(indptr: Array, indices: Array, rows: Array) -> int: ...
def remove_from_coo(dst: Array, src: Array, rows: Array) -> int: ...
def row_norms(rows: Array, out: Array, threads: int) -> None: ...
def admit(
    slot_of: Array,
    owner: Array,
    born: Array,
    where: Array,
    layer_ptr: Array,
    norms: Array,
    saved: Array,
    computed: Array,
    keep: list[int],
    least: float,
    head: int,
    free: Array | None,
    now: int,
    repeated: bool,
    threads: int,
) -> tuple[Array, Array, Array, Array, int]: ...
def look_up(
    slot_of: Array,
    first: int,
    num_nodes: int,
    born: Array,
    ids: Array,
    now: int,
    t_stale: int,
    out: Array,
    threads: int,
) -> None: ...
