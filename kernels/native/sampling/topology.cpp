// What is asked of a topology once a batch or less, and how it refuses a graph that breaks the rules.
#include "sampling/topology.h"

#include <sys/mman.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/parallel.h"
#include "sampling/choose.h"

namespace graphmill {
namespace {

constexpr uintptr_t PAGE = 4096;
constexpr uintptr_t MOST_PAGES = 4;  // of a row: more neighbours than most fan-outs take
constexpr const char* REBUILD = "rebuild the graph with build_csc";

void add_pages(std::vector<uintptr_t>& pages, const void* begin, const void* end) {
    if (begin == end) return;
    const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / PAGE, last = (reinterpret_cast<uintptr_t>(end) - 1) / PAGE;
    if (last - first >= MOST_PAGES) return;
    for (uintptr_t page = first; page <= last; ++page) pages.push_back(page);
}

void ask(std::vector<uintptr_t>& pages) {
    std::sort(pages.begin(), pages.end());
    for (size_t i = 0, next; i < pages.size(); i = next) {
        for (next = i + 1; next < pages.size() && pages[next] <= pages[next - 1] + 1; ++next) {}
        // What the system refuses is read when it is touched.
        madvise(reinterpret_cast<void*>(pages[i] * PAGE), (pages[next - 1] - pages[i] + 1) * PAGE, MADV_WILLNEED);
    }
    pages.clear();
}

}  // namespace

template <class Id>
void Topology<Id>::set_relations(Array<const uint8_t> edge_types) {
    if (edge_types.size() != num_edges_) {
        throw InputError("edge_types has " + std::to_string(edge_types.size()) + " entries, and indices " + std::to_string(num_edges_),
                         REBUILD);
    }
    relations_ = edge_types.data();
}

template <class Id>
void Topology<Id>::ask_for(const Id* nodes, int64_t count) const {
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

template <class Id>
void Topology<Id>::check() const {
    if (num_nodes_ < 0 || indptr_[0] != 0 || indptr_[num_nodes_] != num_edges_) {
        throw InputError("indptr does not run from 0 to the " + std::to_string(num_edges_) + " entries of indices", REBUILD);
    }
    for (int64_t v = 0; v < num_nodes_; ++v) {
        const int64_t degree = indptr_[v + 1] - indptr_[v];
        if (degree >= 0 && degree <= LOCAL_IDS) continue;
        throw InputError("node " + std::to_string(v) + " has the row length " + std::to_string(degree) + "; it must be in 0..2147483647",
                         REBUILD);
    }
}

template <class Id>
void Topology<Id>::refuse_relation(Id node, int64_t relation, int64_t num_relations) const {
    throw InputError("an edge of node " + std::to_string(node) + " has the relation " + std::to_string(relation) +
                         ", and there are fan-outs of " + std::to_string(num_relations) + " relations",
                     "give one number for each relation of the graph");
}

template <class Id>
void Topology<Id>::refuse(Id node) const {
    throw InputError("the graph has an edge from node " + std::to_string(node) + ", but only " + std::to_string(num_nodes_) + " nodes",
                     "run graphmill verify on the graph, then build it again");
}

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

template class Topology<int32_t>;
template class Topology<int64_t>;
template decltype(count_edges<int32_t>) count_edges<int32_t>;
template decltype(count_edges<int64_t>) count_edges<int64_t>;

}  // namespace graphmill
