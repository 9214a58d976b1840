// The check of rows that a pass goes through, before a kernel follows them.
#pragma once

#include <cstdint>
#include <string>

#include "base/input_error.h"

namespace graphmill {

// Throws InputError unless the ends of rows begin .. end-1 ascend within the edges, and every neighbour is a node.
template <class Id>
void check_rows(const int64_t* row, const Id* neighbours, int64_t begin, int64_t end, int64_t num_nodes, int64_t num_edges) {
    bool sound = row[begin] >= 0 && row[end] <= num_edges;
    for (int64_t u = begin; u < end; ++u) sound &= row[u] <= row[u + 1];
    if (!sound) throw InputError("indptr is no list of row ends", "rebuild the graph with build_csc");
    uint64_t largest = 0;  // a negative id becomes a huge one
    for (int64_t e = row[begin]; e < row[end]; ++e) {
        const uint64_t id = static_cast<uint64_t>(static_cast<int64_t>(neighbours[e]));
        largest = id > largest ? id : largest;
    }
    if (row[begin] < row[end] && largest >= static_cast<uint64_t>(num_nodes)) {
        throw InputError("the graph has an edge from a node outside 0.." + std::to_string(num_nodes - 1),
                         "run graphmill verify on the graph, then build it again");
    }
}

}  // namespace graphmill
