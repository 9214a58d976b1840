// The kernels of this room as bind.cpp sees them; the modules of kernels/sampling/ are their front doors and say what they compute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/array.h"
#include "base/buffer.h"
#include "blocks/blocks.h"

namespace graphmill {

// Returns (node, number of the fault) of the first row that is refused. Weights are those of edges (f32[E] or f64[E]) or of sources
// (f64[N]).
template <class Id>
std::optional<std::pair<int64_t, int>> alias_fault(Array<const int64_t> indptr, Array<const Id> indices, Table weights, bool of_nodes,
                                                   bool refuse_empty, int threads);

// Writes table u32[edges, 2] and support i32[end - begin] of rows begin to end - 1, whose weights have been tested.
template <class Id>
void alias_tables(Array<const int64_t> indptr, Array<const Id> indices, Table weights, bool of_nodes, bool uniform, int64_t begin,
                  int64_t end, Array<uint32_t> table, Array<int32_t> support, int threads);

// Returns the positions that one row takes. For tests: with vector instructions and `anywhere` without them the choice must be the same.
Buffer<uint32_t> choose(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, bool anywhere);

// Short random walks from every destination; see kernels/sampling/walk.py.
struct Walks {
    int64_t paths = 0, length = 0;  // paths: 0 if nodes are not found by walking
    uint64_t restart = 0;           // of 2^32

    int64_t visits() const { return paths * length; }
    // Largest number of neighbours that a node gets.
    int64_t most(int64_t fanout) const { return fanout < 0 ? visits() : std::min(fanout, visits()); }
};

// The graph that is sampled, and how. The sampler reads the arrays as long as it lives.
template <class Id>
struct SamplerSetup {
    Array<const int64_t> indptr;
    Array<const Id> indices;
    std::vector<int64_t> fanouts;  // from the seeds outwards; -1 takes all
    bool replace;
    int threads;
    bool fused;  // false: by way of an edge list
    Optional<const uint32_t> table;  // alias tables, where neighbours have weights
    Optional<const int32_t> support;
    Walks walks;
    Optional<const uint8_t> edge_types;  // the relation of every edge
    std::vector<std::vector<int64_t>> by_relation;  // of each fan-out, the numbers of each relation; empty where they are alike
};

template <class Id>
struct SampledBatch {
    Buffer<Id> src_ids;
    std::vector<SampledBlock> blocks;
};

// The parts of a block, in the order in which kernels/sampling/sample.py takes them.
inline auto as_tuple(SampledBlock& block) {
    return std::make_tuple(block.num_dst, block.num_src, std::move(block.start), std::move(block.end), std::move(block.indices),
                           std::move(block.position), std::move(block.transpose.start), std::move(block.transpose.edge),
                           std::move(block.transpose.dst), std::move(block.share));
}

// Which blocks get a transpose: those above the first need one to pass gradients on.
enum class Transposes { None = 0, Hidden = 1, All = 2 };

// One thread uses it at a time.
template <class Id>
class Sampler {
  public:
    virtual ~Sampler() = default;

    virtual SampledBatch<Id> sample(uint64_t batch_key, Array<const Id> seeds, Transposes transposes, bool positions) = 0;

    // From now on the pages of a layer's rows are asked for before they are read.
    virtual void read_ahead() = 0;

    // Bytes that stay between batches; parts of the map that were never touched are counted too.
    virtual int64_t scratch_bytes() const = 0;

    // Whether the map counts visits, and if so: adds the visits since the last call to counts[num_nodes], and forgets them.
    virtual bool counts_visits() const = 0;
    virtual void take_visits(Array<uint32_t> counts) = 0;
};

// The rows of consecutive nodes, which need not be all of the graph, and what belongs to their edges.
template <class Id>
struct Rows {
    Array<const int64_t> indptr;  // [nodes + 1], counted from the first edge of the graph
    Array<const Id> indices;      // of the edges from number first_edge on
    int64_t first_node, first_edge;
    int64_t num_nodes;  // of the graph
    Optional<const uint8_t> edge_types;
    Optional<const uint32_t> table;
    Optional<const int32_t> support;  // of its nodes
};

// What one layer takes of some rows, by the rules of `Sampler`. As it is asked for, position has the places of edges in the graph.
template <class Id>
struct DrawnRows {
    Buffer<int32_t> counts;
    Buffer<Id> sources;
    Buffer<int64_t> position;
    Buffer<float> share;
};

// fanout: the most edges of a row, -1 without such a bound. by_relation: the numbers of each relation; empty where they are alike. Throws
// InputError if a node's row is not among these, or does not follow the one before.
template <class Id>
DrawnRows<Id> draw_rows(const Rows<Id>& rows, Array<const Id> nodes, uint64_t layer_key, int64_t fanout,
                        const std::vector<int64_t>& by_relation, bool replace, bool positions);

// Gives nodes the local ids of a batch; one thread uses it at a time.
template <class Id>
class Renamer {
  public:
    virtual ~Renamer() = default;

    virtual void begin(Array<const Id> seeds) = 0;

    // Names the sources of rows that were drawn in another order: counts[j] of them, after those of earlier ones, are of row order[j], or
    // of row j without an order. Writes the ends of the rows and returns (local ids, number of each edge in `sources`).
    virtual std::pair<Buffer<int32_t>, Buffer<int64_t>> name(Optional<const int64_t> order, Array<const int32_t> counts,
                                                             Array<const Id> sources, Array<int32_t> end) = 0;

    // All nodes that have a local id, in their order.
    virtual Buffer<Id> nodes() const = 0;
};

template <class Id>
std::unique_ptr<Renamer<Id>> make_renamer(int64_t num_nodes);

// hashed: whether the map has slots for the nodes of a batch, or else an entry for every node of the graph. Throws InputError if the rows
// of the graph do not follow each other.
template <class Id>
std::unique_ptr<Sampler<Id>> make_sampler(const SamplerSetup<Id>& setup, bool hashed);

}  // namespace graphmill
