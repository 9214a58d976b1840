// A topology in compressed columns, and how many of its edges a block takes.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/arrays.h"
#include "base/parallel.h"
#include "sampling/block.h"
#include "sampling/choose.h"

namespace graphmill {

constexpr int64_t LOCAL_IDS = std::numeric_limits<int32_t>::max();
constexpr const char* SMALLER = "use a smaller batch size or smaller fanouts";

struct InEdges {
    int64_t begin, degree;
};

template <class Id>
class Topology {
  public:
    Topology(Array<int64_t> indptr, Array<Id> indices)
        : keep_indptr_(indptr), keep_indices_(indices), indptr_(indptr.data()), indices_(indices.data()),
          num_nodes_(indptr.size() - 1), num_edges_(indices.size()) {}

    const int64_t* indptr() const { return indptr_; }
    const Id* indices() const { return indices_; }
    int64_t num_nodes() const { return num_nodes_; }
    InEdges in_edges(Id node) const { return {indptr_[node], indptr_[node + 1] - indptr_[node]}; }
    int64_t num_edges() const { return num_edges_; }

    // The relation of every edge, by which rows are sorted; only fan-outs per relation read it.
    void set_relations(Array<uint8_t> edge_types) {
        if (edge_types.size() != num_edges_) {
            throw InputError("edge_types has " + std::to_string(edge_types.size()) + " entries, and indices " +
                             std::to_string(num_edges_), "rebuild the graph with build_csc");
        }
        keep_relations_ = edge_types;
        relations_ = edge_types.data();
    }

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
    void ask_for(const Id* nodes, int64_t count) const {
        std::vector<uintptr_t> pages;
        pages.reserve(2 * count);
        for (int64_t i = 0; i < count; ++i) add_pages(pages, indptr_ + nodes[i], indptr_ + nodes[i] + 2);
        ask(pages);
        for (int64_t i = 0; i < count; ++i) {
            const InEdges row = in_edges(nodes[i]);
            add_pages(pages, indices_ + row.begin, indices_ + row.begin + row.degree);
            if (relations_) add_pages(pages, relations_ + row.begin, relations_ + row.begin + row.degree);
        }
        ask(pages);
    }

    // Throws InputError unless the rows follow each other and each has at most LOCAL_IDS entries.
    void check() const {
        if (num_nodes_ < 0 || indptr_[0] != 0 || indptr_[num_nodes_] != num_edges_) {
            throw InputError("indptr does not run from 0 to the " + std::to_string(num_edges_) + " entries of indices",
                             "rebuild the graph with build_csc");
        }
        for (int64_t v = 0; v < num_nodes_; ++v) {
            const int64_t degree = indptr_[v + 1] - indptr_[v];
            if (degree < 0 || degree > LOCAL_IDS) {
                throw InputError("node " + std::to_string(v) + " has the row length " + std::to_string(degree) +
                                     "; it must be in 0..2147483647", "rebuild the graph with build_csc");
            }
        }
    }

    [[noreturn]] void refuse_relation(Id node, int64_t relation, int64_t num_relations) const {
        throw InputError("an edge of node " + std::to_string(node) + " has the relation " + std::to_string(relation) +
                             ", and there are fan-outs of " + std::to_string(num_relations) + " relations",
                         "give one number for each relation of the graph");
    }

    [[noreturn]] void refuse(Id node) const {
        throw InputError("the graph has an edge from node " + std::to_string(node) + ", but only " +
                             std::to_string(num_nodes_) + " nodes",
                         "run graphmill verify on the graph, then build it again");
    }

  private:
    static constexpr uintptr_t PAGE = 4096;
    static constexpr uintptr_t MOST_PAGES = 4;  // of a row: more neighbours than most fan-outs take

    template <class T>
    static void add_pages(std::vector<uintptr_t>& pages, const T* begin, const T* end) {
        if (begin == end) return;
        const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / PAGE, last = (reinterpret_cast<uintptr_t>(end) - 1) / PAGE;
        if (last - first >= MOST_PAGES) return;
        for (uintptr_t page = first; page <= last; ++page) pages.push_back(page);
    }

    static void ask(std::vector<uintptr_t>& pages) {
        std::sort(pages.begin(), pages.end());
        for (size_t i = 0, next; i < pages.size(); i = next) {
            for (next = i + 1; next < pages.size() && pages[next] <= pages[next - 1] + 1; ++next) {}
            // What the system refuses is read when it is touched.
            madvise(reinterpret_cast<void*>(pages[i] * PAGE), (pages[next - 1] - pages[i] + 1) * PAGE, MADV_WILLNEED);
        }
        pages.clear();
    }

    Array<int64_t> keep_indptr_;
    Array<Id> keep_indices_;
    std::optional<Array<uint8_t>> keep_relations_;
    const int64_t* indptr_;
    const Id* indices_;
    const uint8_t* relations_ = nullptr;
    int64_t num_nodes_, num_edges_;
};

// Returns how many edges a block takes whose destinations are `nodes`.
template <class Id>
int64_t count_edges(const Topology<Id>& topology, const Id* nodes, const SampledBlock& block, int64_t fanout, int threads) {
    constexpr int64_t PIECE = 1 << 13, AHEAD = 24;
    std::atomic<int64_t> total{0};
    parallel_for(block.num_dst, PIECE, threads, [&](int64_t begin, int64_t end) {
        int64_t mine = 0;
        for (int64_t i = begin; i < end; ++i) {
            if (i + AHEAD < block.num_dst) topology.prefetch(nodes[i + AHEAD]);
            const InEdges edges = topology.in_edges(nodes[i]);
            if (!block.by_relation) {
                mine += num_taken(edges.degree, fanout, block.replace);
                continue;
            }
            topology.each_run(edges, block, nodes[i], [&](int64_t, int64_t count, int64_t, int64_t most) {
                mine += num_taken(count, most, block.replace);
            });
        }
        total += mine;
    });
    if (total > LOCAL_IDS) throw InputError("a block would have more than 2147483647 edges", SMALLER);
    return total;
}

}  // namespace graphmill
