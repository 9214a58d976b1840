// What kernels share that sample a layer: the state of a batch, and the map from nodes to local ids.
//
// The map has one entry per node: the stamp of the batch in the upper half, newer stamps smaller, and in the lower half the local id, or, until
// it is known, NEW and the first edge that reached the node. Its least value is found by atomics on integers, so the order of threads does not
// matter. What a batch asks for lies in `asked` on the device, and no argument of a launch changes with the batch, so launches that were
// recorded once sample any batch. Sizes stay in `state`: nodes so far, destinations of the layer, its edges, the first fault, entries of
// alias tables that were read, and, where only the graph knows how many there may be, edges that the layer wants: a sum of 64 bits, since
// running sums have 32.
#pragma once

#include "base/rng.h"

#ifndef ID
#define ID int
#endif

typedef unsigned long long u64;
typedef long long i64;

constexpr unsigned NEW = 0x80000000u;
constexpr int NODES = 0, DESTINATIONS = 1, EDGES = 2, FAULT = 3, READS = 4, WANTED = 5;
constexpr int STAMP = 0, SEEDS = 1;  // of `asked`: the batch's stamp and number of seeds, behind which stand the keys of the layers
constexpr int BAD_RELATION = 1, BAD_TABLE = 2, BAD_NEIGHBOUR = 3;

__device__ inline i64 thread_number() { return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline i64 num_threads() { return static_cast<i64>(gridDim.x) * blockDim.x; }

// The least fault wins: its kind in the low bits, its place above.
__device__ inline void note(i64* state, int kind, i64 place) {
    atomicMin(reinterpret_cast<u64*>(state + FAULT), static_cast<u64>(place << 2 | kind));
}

__device__ inline i64 num_taken(i64 degree, int fanout, bool replace) {
    if (fanout < 0 || degree == 0) return degree;
    return replace || degree > fanout ? fanout : degree;
}

// Adds what a thread counted to the edges that the layer wants.
__device__ inline void want(i64* state, i64 edges) {
    if (edges > 0) atomicAdd(reinterpret_cast<u64*>(state + WANTED), static_cast<u64>(edges));
}

// The id at a place of the topology; 0, and a fault, where it names no node.
__device__ inline ID source_at(const ID* indices, i64 position, i64 num_nodes, i64* state) {
    const ID source = indices[position];
    if (source >= 0 && source < num_nodes) return source;
    note(state, BAD_NEIGHBOUR, position);
    return 0;
}

// Edge e offers its number to its source.
__device__ inline void reach(ID source, i64 e, u64 stamp, u64* map) { atomicMin(map + source, stamp << 32 | NEW | static_cast<u64>(e)); }

// The first of `count` ascending positions that is not below `value`.
__device__ inline int first_from(const unsigned* chosen, int count, unsigned value) {
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (chosen[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Puts `value` among the first `count` ascending positions.
__device__ inline void insert(unsigned* chosen, int count, unsigned value) {
    int at = count;
    for (; at > 0 && chosen[at - 1] > value; --at) chosen[at] = chosen[at - 1];
    chosen[at] = value;
}
