// A topology in compressed columns, and how many of its edges a block takes.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <limits>
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
    const int64_t* indptr_;
    const Id* indices_;
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
            mine += num_taken(topology.in_edges(nodes[i]).degree, fanout, block.replace);
        }
        total += mine;
    });
    if (total > LOCAL_IDS) throw InputError("a block would have more than 2147483647 edges", SMALLER);
    return total;
}

}  // namespace graphmill
