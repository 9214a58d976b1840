// Fused neighbour sampling; see kernels/sampling/sample.py for the rule and kernels/sampling/sample_cuda.py for the order of the launches.
#ifndef REPLACE
#define REPLACE 0
#endif
#include "sampling/layer.cuh"
#include "sampling/positions.cuh"

extern "C" __global__ void __launch_bounds__(256) fill(u64* map, i64 count) {
    for (i64 at = thread_number(); at < count; at += num_threads()) map[at] = ~0ull;
}

extern "C" __global__ void __launch_bounds__(256)
name_seeds(const ID* seeds, const u64* asked, u64* map, ID* nodes) {
    const u64 stamp = asked[STAMP];
    for (i64 at = thread_number(); at < static_cast<i64>(asked[SEEDS]); at += num_threads()) {
        const ID seed = seeds[at];
        nodes[at] = seed;
        atomicMin(map + seed, stamp << 32 | static_cast<u64>(at));
    }
}

// Begins the batch: the seeds are the nodes so far.
extern "C" __global__ void begin(i64* state, const u64* asked) {
    if (thread_number() > 0) return;
    state[NODES] = static_cast<i64>(asked[SEEDS]);
    state[DESTINATIONS] = state[EDGES] = state[READS] = state[WANTED] = 0;
    state[FAULT] = -1;
}

// taken[i] = edges that destination i gives up; 0 behind the last one, up to `most` rows.
extern "C" __global__ void __launch_bounds__(256)
count(const i64* indptr, const ID* nodes, i64* state, int fanout, int most, int* taken) {
    i64 counted = 0;
    for (i64 i = thread_number(); i < most; i += num_threads()) {
        i64 edges = 0;
        if (i < state[NODES]) edges = num_taken(indptr[nodes[i] + 1] - indptr[nodes[i]], fanout, REPLACE);
        taken[i] = static_cast<int>(edges);
        counted += edges;
    }
    if (fanout < 0) want(state, counted);
}

// Makes the nodes so far the destinations of the layer; ends: running sums of `taken`.
extern "C" __global__ void open_layer(const int* ends, int most, i64* state) {
    if (thread_number() > 0) return;
    state[DESTINATIONS] = state[NODES];
    state[EDGES] = most > 0 ? ends[most - 1] : 0;
}

// A thread chooses the edges of a destination. reached: global ids of the sources; rows: their destinations; positions: where the edges stand
// in the graph, or null; scratch: as long as reached, for rows of more than SMALL chosen edges.
extern "C" __global__ void __launch_bounds__(256)
choose(const i64* indptr, const ID* indices, i64 num_nodes, const ID* nodes, const u64* layer_key, int fanout, const u64* asked,
       const int* ends, unsigned* scratch, ID* reached, int* rows, i64* positions, u64* map, i64* state) {
    const u64 stamp = asked[STAMP];
    unsigned few[SMALL];
    for (i64 i = thread_number(); i < state[DESTINATIONS]; i += num_threads()) {
        const i64 node = nodes[i], first = indptr[node], degree = indptr[node + 1] - first;
        const int begin = i ? ends[i - 1] : 0, taken = ends[i] - begin;
        const bool all = fanout < 0 || (!REPLACE && degree <= fanout);
        unsigned* chosen = taken <= SMALL ? few : scratch + begin;
        if (!all) choose_positions(graphmill::absorb(*layer_key, static_cast<u64>(node)), degree, taken, chosen);
        for (int k = 0; k < taken; ++k) {
            const i64 position = first + (all ? k : chosen[k]), e = begin + k;
            const ID source = source_at(indices, position, num_nodes, state);
            reached[e] = source;
            rows[e] = static_cast<int>(i);
            if (positions) positions[e] = position;
            reach(source, e, stamp, map);
        }
    }
}

// fresh[e] = whether edge e was the first to reach its source; 0 behind the last edge, up to `most`.
extern "C" __global__ void __launch_bounds__(256)
find_new(const ID* reached, const u64* asked, const u64* map, const i64* state, int most, int* fresh) {
    const u64 stamp = asked[STAMP];
    for (i64 e = thread_number(); e < most; e += num_threads()) {
        fresh[e] = e < state[EDGES] && map[reached[e]] == (stamp << 32 | NEW | static_cast<u64>(e));
    }
}

// ranks: running sums of `fresh`. New nodes get the local ids behind those so far, in the order of their first edges.
extern "C" __global__ void __launch_bounds__(256)
name_new(const ID* reached, const int* fresh, const int* ranks, const u64* asked, const i64* state, u64* map, ID* nodes) {
    const u64 stamp = asked[STAMP];
    for (i64 e = thread_number(); e < state[EDGES]; e += num_threads()) {
        if (!fresh[e]) continue;
        const i64 local = state[DESTINATIONS] + ranks[e] - 1;
        nodes[local] = reached[e];
        map[reached[e]] = stamp << 32 | static_cast<u64>(local);
    }
}

extern "C" __global__ void __launch_bounds__(256)
name_edges(const ID* reached, const u64* map, const i64* state, int* local_ids) {
    for (i64 e = thread_number(); e < state[EDGES]; e += num_threads()) {
        local_ids[e] = static_cast<int>(map[reached[e]] & 0x7FFFFFFFu);
    }
}

// Ends the layer: notes its sizes, destinations, edges and nodes, for the download at the end of the batch.
extern "C" __global__ void close_layer(const int* ranks, int most, i64* state, i64* sizes) {
    if (thread_number() > 0) return;
    state[NODES] = state[DESTINATIONS] + (most > 0 ? ranks[most - 1] : 0);
    state[WANTED] = 0;
    sizes[0] = state[DESTINATIONS];
    sizes[1] = state[EDGES];
    sizes[2] = state[NODES];
    sizes[3] = state[FAULT];
    sizes[4] = state[READS];
}

// starts[i] = ends[i - 1].
extern "C" __global__ void __launch_bounds__(256) shift(const int* ends, int num_dst, int* starts) {
    for (i64 i = thread_number(); i < num_dst; i += num_threads()) starts[i] = i ? ends[i - 1] : 0;
}

// Copies pieces side by side. pieces: three numbers for each, its address, its first word in `out` and the number of its words.
extern "C" __global__ void __launch_bounds__(256) copy_pieces(const i64* pieces, int count, int* out) {
    for (int piece = 0; piece < count; ++piece) {
        const int* from = reinterpret_cast<const int*>(pieces[3 * piece]);
        int* to = out + pieces[3 * piece + 1];
        for (i64 at = thread_number(); at < pieces[3 * piece + 2]; at += num_threads()) to[at] = from[at];
    }
}
