// A block as loops over edges see it, the destinations' own terms included.
#pragma once

#include <cstdint>
#include <optional>

#include "arrays.h"

namespace graphmill {

template <class T>
using Optional = std::optional<Array<T>>;

// A block as the loops see it. The weights of destination i's own term are row num_edges + i of all edge arrays.
struct Rows {
    const int32_t *begins, *ends, *sources, *place;
    int64_t num_dst, num_src, num_edges;
    int64_t own(int64_t i) const { return place ? place[i] : i; }
};

inline Rows rows_of(const Array<int32_t>& start, const Array<int32_t>& end, const Array<int32_t>& indices,
                    const Optional<int32_t>& dst_pos, int64_t num_src) {
    return {start.data(), end.data(), indices.data(), dst_pos ? dst_pos->data() : nullptr,
            start.size(), num_src,    indices.size()};
}

// Calls body(edge row, source row) for the edges of destination i, in order, and then for its own term.
template <class Body>
inline void each_edge(const Rows& block, int64_t i, const Body& body) {
    for (int64_t e = block.begins[i]; e < block.ends[i]; ++e) body(e, int64_t{block.sources[e]});
    body(block.num_edges + i, block.own(i));
}

}  // namespace graphmill
