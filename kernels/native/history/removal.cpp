// Removal of nodes' in-edges from compressed rows and from edge lists, one node after the other: what benchmarks/csr2.py compares with.
//
// Both do what FreshGNN's Fig. 8 describes. In compressed rows the later edges move up, and the later row ends get smaller; in an edge list
// sorted by destination the node's edges are found by binary search, and the later ones move up in both arrays.
#include "history/history.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/input_error.h"

namespace graphmill {
namespace {

void check_rows(const int32_t* rows, int64_t count, int64_t num_dst) {
    for (int64_t k = 0; k < count; ++k) {
        if (rows[k] < 0 || rows[k] >= num_dst) {
            throw InputError("row " + std::to_string(rows[k]) + " is none of " + std::to_string(num_dst), "give the block's destinations");
        }
    }
}

void close_up(int32_t* edges, int64_t low, int64_t high, int64_t count) {
    std::memmove(edges + low, edges + high, (count - high) * sizeof(int32_t));
}

}  // namespace

int64_t remove_from_csr(Array<int32_t> indptr, Array<int32_t> indices, Array<const int32_t> rows) {
    int32_t *ends = indptr.data(), *edges = indices.data();
    const int64_t num_dst = indptr.size() - 1, count = rows.size();
    check_rows(rows.data(), count, num_dst);
    for (int64_t k = 0; k < count; ++k) {
        const int32_t i = rows.data()[k], low = ends[i], high = ends[i + 1];
        close_up(edges, low, high, ends[num_dst]);
        for (int64_t later = i + 1; later <= num_dst; ++later) ends[later] -= high - low;
    }
    return ends[num_dst];
}

// dst is ascending.
int64_t remove_from_coo(Array<int32_t> dst, Array<int32_t> src, Array<const int32_t> rows) {
    int32_t *to = dst.data(), *from = src.data();
    int64_t num_edges = dst.size();
    for (int64_t k = 0; k < rows.size(); ++k) {
        const auto [low, high] = std::equal_range(to, to + num_edges, rows.data()[k]);
        const int64_t first = low - to, last = high - to;
        close_up(to, first, last, num_edges);
        close_up(from, first, last, num_edges);
        num_edges -= last - first;
    }
    return num_edges;
}

}  // namespace graphmill
