// Fan-outs per relation: each run of one relation in a row is chosen as a row of its own; kernels/sampling/relations.py has the rule.
#ifndef REPLACE
#define REPLACE 0
#endif
#include "sampling/layer.cuh"
#include "sampling/positions.cuh"

typedef unsigned char u8;

// The place behind the run that begins at `first`, in a row that is sorted by relation and ends at `last`.
__device__ inline i64 run_end(const u8* types, i64 first, i64 last) {
    const u8 relation = types[first];
    i64 low = first + 1, high = last;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (types[middle] <= relation) low = middle + 1;
        else high = middle;
    }
    return low;
}

// The number of neighbours of a relation, and none of one without a number, which is a fault.
__device__ inline int fanout_of(int relation, const int* numbers, int num_relations, i64 place, i64* state) {
    if (relation < num_relations) return numbers[relation];
    note(state, BAD_RELATION, place);
    return 0;
}

__device__ inline i64 taken_of_run(i64 count, int fanout) { return num_taken(count, fanout, REPLACE && fanout >= 0); }

// As `count` of sample.cu; unbounded: whether only the graph knows how many edges the layer has.
extern "C" __global__ void __launch_bounds__(256)
count_runs(const i64* indptr, const u8* types, const ID* nodes, i64* state, const int* numbers, int num_relations, int unbounded, int most,
           int* taken) {
    i64 counted = 0;
    for (i64 i = thread_number(); i < most; i += num_threads()) {
        i64 edges = 0;
        const i64 last = i < state[NODES] ? indptr[nodes[i] + 1] : 0;
        for (i64 first = i < state[NODES] ? indptr[nodes[i]] : 0, next; first < last; first = next) {
            next = run_end(types, first, last);
            edges += taken_of_run(next - first, fanout_of(types[first], numbers, num_relations, first, state));
        }
        taken[i] = static_cast<int>(edges);
        counted += edges;
    }
    if (unbounded) want(state, counted);
}

// As `choose` of sample.cu.
extern "C" __global__ void __launch_bounds__(256)
choose_runs(const i64* indptr, const ID* indices, const u8* types, i64 num_nodes, const ID* nodes, const u64* layer_key, const int* numbers,
            int num_relations, const u64* asked, const int* ends, unsigned* scratch, ID* reached, int* rows, i64* positions, u64* map,
            i64* state) {
    const u64 stamp = asked[STAMP];
    unsigned few[SMALL];
    for (i64 i = thread_number(); i < state[DESTINATIONS]; i += num_threads()) {
        const i64 node = nodes[i], last = indptr[node + 1];
        const u64 row_key = graphmill::absorb(*layer_key, static_cast<u64>(node));
        int begin = i ? ends[i - 1] : 0;
        for (i64 first = indptr[node], next; first < last; first = next) {
            next = run_end(types, first, last);
            const int relation = types[first], fanout = fanout_of(relation, numbers, num_relations, first, state);
            const int taken = static_cast<int>(taken_of_run(next - first, fanout));
            const bool all = fanout < 0 || (!REPLACE && next - first <= fanout);
            unsigned* chosen = taken <= SMALL ? few : scratch + begin;
            if (!all) choose_positions(graphmill::absorb(row_key, static_cast<u64>(relation)), next - first, taken, chosen);
            for (int k = 0; k < taken; ++k) {
                const i64 position = first + (all ? k : chosen[k]), e = begin + k;
                const ID source = source_at(indices, position, num_nodes, state);
                reached[e] = source;
                rows[e] = static_cast<int>(i);
                if (positions) positions[e] = position;
                reach(source, e, stamp, map);
            }
            begin += taken;
        }
    }
}
