// The ways of picking a piece of rows; see waiting.h.
#include "sampling/waiting.h"

#include <algorithm>
#include <string>

#include "base/input_error.h"
#include "sampling/sampled_row.h"
#include "sampling/walk.h"
#include "sampling/weighted_row.h"

namespace graphmill {
namespace {

template <class Id>
[[noreturn]] void refuse_row(const Rows<Id>& rows, Id node) {
    const int64_t last = rows.first_node + rows.indptr.size() - 2;
    throw InputError("the row of node " + std::to_string(node) + " is not among those of nodes " + std::to_string(rows.first_node) +
                         " to " + std::to_string(last) + ", or does not follow the one before",
                     "run graphmill verify on the graph, then build it again");
}

template <class Id>
void check_rows(const Rows<Id>& rows, Array<const Id> nodes) {
    constexpr int64_t AHEAD = 24;
    const int64_t count = rows.indptr.size() - 1, last_edge = rows.first_edge + rows.indices.size();
    for (int64_t i = 0; i < nodes.size(); ++i) {
        const int64_t place = nodes[i] - rows.first_node;
        if (place < 0 || place >= count) refuse_row(rows, nodes[i]);
        if (i + AHEAD < nodes.size()) __builtin_prefetch(rows.indptr.data() + (nodes[i + AHEAD] - rows.first_node));
        const int64_t begin = rows.indptr[place], end = rows.indptr[place + 1];
        // A node without edges may stand where no edge was read.
        const bool inside = begin == end || (begin >= rows.first_edge && end <= last_edge);
        if (begin > end || end - begin > LOCAL_IDS || !inside) refuse_row(rows, nodes[i]);
    }
}

}  // namespace

template <class Id>
void pick_uniform(const Topology<Id>& topology, SampledBlock& block, int64_t fanout, const Id* nodes, int64_t begin, int64_t end,
                  Waiting<Id>& waiting) {
    const auto read = [&](int64_t i, const SampledRow<Id>& row) {
        const int64_t first = block.start[i];
        waiting.grow(block.end[i], block);
        row.read(topology, waiting.ids.data() + first, waiting.position.data() ? waiting.position.data() + first : nullptr);
    };
    pick_rows(topology, block, fanout, nodes, begin, end, read, [](int64_t) {});
}

// Three steps per row, LAG rows apart, so that what each reads is on its way.
template <class Id>
void pick_weighted(const Topology<Id>& topology, const AliasTables& tables, SampledBlock& block, int64_t fanout, const Id* nodes,
                   int64_t begin, int64_t end, Waiting<Id>& waiting) {
    constexpr int64_t LAG = 8;
    WeightedRow<Id> rows[2 * LAG];
    WeightedChooser chooser;
    int64_t num_edges = 0;
    for (int64_t i = begin; i < end + 2 * LAG; ++i) {
        const int64_t chosen = i - LAG, read = chosen - LAG;
        if (read >= begin && read < end) {
            const int64_t first = block.start[read];
            waiting.grow(block.end[read], block);
            rows[read % (2 * LAG)].read(topology, tables, chooser, waiting.ids.data() + first,
                                        block.position.data() ? waiting.position.data() + first : nullptr,
                                        waiting.share.data() + first);
        }
        if (chosen >= begin && chosen < end) {
            block.start[chosen] = static_cast<int32_t>(num_edges);
            num_edges += rows[chosen % (2 * LAG)].choose(topology, tables, block, chooser);
            block.end[chosen] = static_cast<int32_t>(num_edges);
        }
        if (i + LAG < end) {
            topology.prefetch(nodes[i + LAG]);
            if (tables.support) __builtin_prefetch(tables.support + nodes[i + LAG]);
        }
        if (i < end) rows[i % (2 * LAG)].look(topology, tables, block, fanout, nodes[i]);
    }
}

template <class Id>
void pick_visited(const Topology<Id>& topology, const Walks& walks, SampledBlock& block, int64_t fanout, const Id* nodes,
                  int64_t begin, int64_t end, Waiting<Id>& waiting) {
    Walker<Id> walker(topology, walks);
    const int64_t most = walks.most(fanout);
    int64_t num_edges = 0;
    for (int64_t tile = begin; tile < end; tile += walker.tile()) {
        const int64_t count = std::min(walker.tile(), end - tile);
        walker.walk(nodes + tile, count, block.key);
        waiting.grow(num_edges + count * most, block);
        for (int64_t i = 0; i < count; ++i) {
            block.start[tile + i] = static_cast<int32_t>(num_edges);
            num_edges += walker.most_visited(i, most, waiting.ids.data() + num_edges, waiting.share.data() + num_edges);
            block.end[tile + i] = static_cast<int32_t>(num_edges);
        }
    }
}

template <class Id>
void read_whole(const Topology<Id>& topology, const SampledBlock& block, const Id* nodes, int64_t low, int64_t high,
                Waiting<Id>& waiting) {
    waiting.grow(high - low, block);
    // The last row that starts at or before the piece; empty ones in front of it start there, too.
    int64_t i = std::upper_bound(block.start.data(), block.start.data() + block.num_dst, low) - block.start.data() - 1;
    for (int64_t e = low; e < high; ++i) {
        const int64_t last = std::min<int64_t>(block.end[i], high), count = last - e;
        if (count <= 0) continue;
        const int64_t from = topology.in_edges(nodes[i]).begin + (e - block.start[i]);
        const Id* ids = topology.indices() + from;
        Id largest = 0, smallest = 0;
        for (int64_t j = 0; j < count; ++j) {
            waiting.ids[e - low + j] = ids[j];
            largest = std::max(largest, ids[j]);
            smallest = std::min(smallest, ids[j]);
        }
        if (smallest < 0 || largest >= topology.num_nodes()) topology.refuse(smallest < 0 ? smallest : largest);
        for (int64_t j = 0; block.position.data() && j < count; ++j) waiting.position[e - low + j] = from + j;
        e = last;
    }
}

template <class Id>
DrawnRows<Id> draw_rows(const Rows<Id>& rows, Array<const Id> nodes, uint64_t layer_key, int64_t fanout,
                        const std::vector<int64_t>& by_relation, bool replace, bool positions) {
    const int64_t num_edges = rows.indices.size(), num_rows = rows.indptr.size() - 1;
    const bool fits = num_rows >= 0 && (!rows.edge_types || rows.edge_types->size() == num_edges) &&
                      (!rows.table || rows.table->size() == 2 * num_edges) && (!rows.support || rows.support->size() == num_rows);
    if (!fits || (!by_relation.empty() && !rows.edge_types)) throw InputError("the arrays of rows do not fit each other", "give those of one graph");
    check_rows(rows, nodes);
    const Topology<Id> topology(rows.indptr, rows.indices, pointer(rows.edge_types), rows.first_node, rows.first_edge, rows.num_nodes);
    SampledBlock block;
    block.key = layer_key;
    block.num_dst = nodes.size();
    if (!by_relation.empty()) {
        block.by_relation = by_relation.data();
        block.num_relations = static_cast<int64_t>(by_relation.size());
    }
    block.replace = replace && (fanout >= 0 || block.by_relation);
    block.start = Buffer<int32_t>(block.num_dst);
    block.end = Buffer<int32_t>(block.num_dst);
    // Waiting edges have what the block has; the arrays themselves are not written.
    if (positions) block.position = Buffer<int64_t>(0);
    if (rows.table) block.share = Buffer<float>(0);
    // Throws if they are more than a block has; the sum is left out where it cannot be.
    if (fanout < 0 || block.num_dst > LOCAL_IDS / std::max<int64_t>(fanout, 1)) count_edges(topology, nodes.data(), block, fanout, 1);
    Waiting<Id> waiting;
    waiting.grow(1, block);
    if (rows.table) {
        const AliasTables tables{reinterpret_cast<const AliasEntry*>(rows.table->data()) - rows.first_edge,
                                 rows.support ? rows.support->data() - rows.first_node : nullptr};
        pick_weighted(topology, tables, block, fanout, nodes.data(), 0, block.num_dst, waiting);
    } else {
        pick_uniform(topology, block, fanout, nodes.data(), 0, block.num_dst, waiting);
    }
    int64_t total = 0;
    for (int64_t i = 0; i < block.num_dst; ++i) total += block.end[i] -= block.start[i];
    waiting.ids.shrink(total);
    waiting.position.shrink(total);
    waiting.share.shrink(total);
    return {std::move(block.end), std::move(waiting.ids), std::move(waiting.position), std::move(waiting.share)};
}

template decltype(draw_rows<int32_t>) draw_rows<int32_t>;
template decltype(draw_rows<int64_t>) draw_rows<int64_t>;
template decltype(pick_uniform<int32_t>) pick_uniform<int32_t>;
template decltype(pick_uniform<int64_t>) pick_uniform<int64_t>;
template decltype(pick_weighted<int32_t>) pick_weighted<int32_t>;
template decltype(pick_weighted<int64_t>) pick_weighted<int64_t>;
template decltype(pick_visited<int32_t>) pick_visited<int32_t>;
template decltype(pick_visited<int64_t>) pick_visited<int64_t>;
template decltype(read_whole<int32_t>) read_whole<int32_t>;
template decltype(read_whole<int64_t>) read_whole<int64_t>;

}  // namespace graphmill
