// A topology in compressed columns, and how many of its edges a block takes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/array.h"
#include "blocks/blocks.h"

namespace graphmill {

constexpr int64_t LOCAL_IDS = std::numeric_limits<int32_t>::max();
constexpr const char* SMALLER = "use a smaller batch size or smaller fanouts";

struct InEdges {
    int64_t begin, degree;
};

template <class Id>
class Topology {
  public:
    Topology(Array<const int64_t> indptr, Array<const Id> indices)
        : indptr_(indptr.data()), indices_(indices.data()), num_nodes_(indptr.size() - 1), num_edges_(indices.size()) {}

    // The rows of some consecutive nodes alone: the arrays begin with those of node `first_node` and of edge `first_edge`. Whoever has it
    // asks for no other rows.
    Topology(Array<const int64_t> indptr, Array<const Id> indices, const uint8_t* relations, int64_t first_node, int64_t first_edge,
             int64_t num_nodes)
        : indptr_(indptr.data() - first_node), indices_(indices.data() - first_edge),
          relations_(relations ? relations - first_edge : nullptr), num_nodes_(num_nodes), num_edges_(first_edge + indices.size()) {}

    const int64_t* indptr() const { return indptr_; }
    const Id* indices() const { return indices_; }
    int64_t num_nodes() const { return num_nodes_; }
    InEdges in_edges(Id node) const { return {indptr_[node], indptr_[node + 1] - indptr_[node]}; }
    int64_t num_edges() const { return num_edges_; }

    // The relation of every edge, by which rows are sorted; only fan-outs per relation read it.
    void set_relations(Array<const uint8_t> edge_types);

    // Calls take(first, count, relation, fanout) for each run of one relation in the row of a node; positions count from the row's begin.
    // A search ends at a larger relation or at the end, so each comes once at most, also in a row that is not sorted.
    template <class Take>
    void each_run(const InEdges& edges, const SampledBlock& block, Id node, Take take) const {
        const uint8_t *row = relations_ + edges.begin, *last = row + edges.degree;
        for (const uint8_t *first = row, *next; first < last; first = next) {
            const int64_t relation = *first;
            if (relation >= block.num_relations) refuse_relation(node, relation, block.num_relations);
            next = std::upper_bound(first + 1, last, *first);
            take(first - row, next - first, relation, block.by_relation[relation]);
        }
    }

    // After `prefetch` of the same node has come.
    void prefetch_relations(Id node) const { __builtin_prefetch(relations_ + indptr_[node]); }

    // Both ends of a row: one in eight rows ends on the next line.
    void prefetch(Id node) const {
        __builtin_prefetch(indptr_ + node);
        __builtin_prefetch(indptr_ + node + 1);
    }

    // Asks the system for the pages that rows are on, all at once, and does not wait: of a mapped file that is larger than the memory for
    // it, a page is waited for when it is touched, one after the other. Of long rows only a few entries are read, so these are left out.
    void ask_for(const Id* nodes, int64_t count) const;

    // Throws InputError unless the rows follow each other and each has at most LOCAL_IDS entries.
    void check() const;

    [[noreturn]] void refuse_relation(Id node, int64_t relation, int64_t num_relations) const;
    [[noreturn]] void refuse(Id node) const;

  private:
    const int64_t* indptr_;
    const Id* indices_;
    const uint8_t* relations_ = nullptr;
    int64_t num_nodes_, num_edges_;
};

// Returns how many edges a block takes whose destinations are `nodes`.
template <class Id>
int64_t count_edges(const Topology<Id>& topology, const Id* nodes, const SampledBlock& block, int64_t fanout, int threads);

}  // namespace graphmill
