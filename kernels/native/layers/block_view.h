// A block as loops over edges see it, the destinations' own terms included.
#pragma once

#include <cstdint>
#include <vector>

#include "base/array.h"
#include "layers/work_split.h"

namespace graphmill {

// What the loops read of a block. The weights of destination i's own term are row num_edges + i of all edge arrays.
struct BlockView {
    const int32_t *begins, *ends, *sources, *place;
    int64_t num_dst, num_src, num_edges;
    int64_t own(int64_t i) const { return place ? place[i] : i; }
};

inline BlockView view_of(const Array<const int32_t>& start, const Array<const int32_t>& end, const Array<const int32_t>& indices,
                         const Optional<const int32_t>& dst_pos, int64_t num_src) {
    return {start.data(), end.data(), indices.data(), pointer(dst_pos), start.size(), num_src, indices.size()};
}

// The block's rows in pieces; hubs are shared in parts of `hub_columns` of their `width` columns.
std::vector<Piece> cut_block(const BlockView& block, int64_t width, int64_t hub_columns, int threads);

// Throws InputError unless a piece's edges name sources of the block.
void check_sources(const BlockView& block, const Piece& piece);

// Where source s is a destination itself: its row among them, else -1.
std::vector<int32_t> own_rows(int64_t num_src, int64_t num_dst, const int32_t* place);

// Calls body(edge row, source row) for the edges of destination i, in order, and then for its own term.
template <class Body>
inline void each_edge(const BlockView& block, int64_t i, const Body& body) {
    for (int64_t e = block.begins[i]; e < block.ends[i]; ++e) body(e, int64_t{block.sources[e]});
    body(block.num_edges + i, block.own(i));
}

// What the loops read of a block's transpose: the edges of source s are starts[s] to starts[s + 1].
struct Transposed {
    const int32_t *starts, *edges, *dsts;
    int64_t num_src, num_dst, num_transposed;
};

std::vector<Piece> cut_transposed(const Transposed& transposed, int64_t width, int64_t hub_columns, int threads);

// Throws InputError unless a piece's edges name destinations of the block and, where num_edges is not 0, edges of it.
void check_transposed(const Transposed& transposed, const Piece& piece, int64_t num_edges);

}  // namespace graphmill
