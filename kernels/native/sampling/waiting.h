// Edges of a piece of rows until they are renamed, which is when their place in the block is known; and the rows that are picked into it.
#pragma once

#include <cstdint>

#include "base/buffer.h"
#include "sampling/alias.h"
#include "blocks/blocks.h"
#include "sampling/sampling.h"
#include "sampling/topology.h"

namespace graphmill {

template <class Id>
struct Waiting {
    Buffer<Id> ids;
    Buffer<int64_t> position;
    Buffer<float> share;

    // Makes space for the first `count` edges, in the arrays that the block has.
    void grow(int64_t count, const SampledBlock& block) {
        ids.grow(count);
        if (block.position.data()) position.grow(count);
        if (block.share.data()) share.grow(count);
    }
};

// Draws rows begin to end - 1 uniformly.
template <class Id>
void pick_uniform(const Topology<Id>& topology, SampledBlock& block, int64_t fanout, const Id* nodes, int64_t begin, int64_t end,
                  Waiting<Id>& waiting);

// Draws rows begin to end - 1 in proportion to weights.
template <class Id>
void pick_weighted(const Topology<Id>& topology, const AliasTables& tables, SampledBlock& block, int64_t fanout, const Id* nodes,
                   int64_t begin, int64_t end, Waiting<Id>& waiting);

// Walks from rows begin to end - 1, and takes what the paths visit most.
template <class Id>
void pick_visited(const Topology<Id>& topology, const Walks& walks, SampledBlock& block, int64_t fanout, const Id* nodes,
                  int64_t begin, int64_t end, Waiting<Id>& waiting);

// Reads edges low to high - 1 of a block whose rows are taken whole; a row may lie in several such pieces.
template <class Id>
void read_whole(const Topology<Id>& topology, const SampledBlock& block, const Id* nodes, int64_t low, int64_t high,
                Waiting<Id>& waiting);

}  // namespace graphmill
