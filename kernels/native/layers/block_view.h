// A block as loops over edges see it, the destinations' own terms included.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/arrays.h"
#include "layers/work_split.h"

namespace graphmill {

template <class T>
using Optional = std::optional<Array<T>>;

// What the loops read of a block. The weights of destination i's own term are row num_edges + i of all edge arrays.
struct BlockView {
    const int32_t *begins, *ends, *sources, *place;
    int64_t num_dst, num_src, num_edges;
    int64_t own(int64_t i) const { return place ? place[i] : i; }
};

inline BlockView view_of(const Array<int32_t>& start, const Array<int32_t>& end, const Array<int32_t>& indices,
                         const Optional<int32_t>& dst_pos, int64_t num_src) {
    return {start.data(), end.data(), indices.data(), dst_pos ? dst_pos->data() : nullptr,
            start.size(), num_src,    indices.size()};
}

// The block's rows in pieces; hubs are shared in parts of `hub_columns` of their `width` columns.
inline std::vector<Piece> cut_block(const BlockView& block, int64_t width, int64_t hub_columns, int threads) {
    return cut_rows(block.num_dst, block.begins, block.ends, block.num_edges, width, hub_columns, threads,
                    "the block's start and end");
}

inline void check_sources(const BlockView& block, const Piece& piece) {
    const std::string problem = "the block has a local source id outside 0.." + std::to_string(block.num_src - 1);
    check_edges(piece, block.begins, block.ends, block.sources, block.num_src, problem.c_str(),
                "indices are local: rows of src_ids, not global node ids");
}

// Calls body(edge row, source row) for the edges of destination i, in order, and then for its own term.
template <class Body>
inline void each_edge(const BlockView& block, int64_t i, const Body& body) {
    for (int64_t e = block.begins[i]; e < block.ends[i]; ++e) body(e, int64_t{block.sources[e]});
    body(block.num_edges + i, block.own(i));
}

// Where source s is a destination itself: its row among them, else -1.
inline std::vector<int32_t> own_rows(int64_t num_src, int64_t num_dst, const int32_t* place) {
    std::vector<int32_t> own(num_src, -1);
    for (int64_t i = 0; i < num_dst; ++i) {
        int32_t& row = own[place ? place[i] : i];
        if (row >= 0) {
            throw InputError("dst_pos names source row " + std::to_string(place[i]) + " twice",
                             "list every destination once");
        }
        row = static_cast<int32_t>(i);
    }
    return own;
}

// What the loops read of a block's transpose: the edges of source s are starts[s] to starts[s + 1].
struct Transposed {
    const int32_t *starts, *edges, *dsts;
    int64_t num_src, num_dst, num_transposed;
};

inline std::vector<Piece> cut_transposed(const Transposed& transposed, int64_t width, int64_t hub_columns, int threads) {
    return cut_rows(transposed.num_src, transposed.starts, transposed.starts + 1, transposed.num_transposed, width, hub_columns, threads,
                    "the starts of the transpose");
}

// Throws InputError unless a piece's edges name destinations of the block and, where num_edges is not 0, edges of it.
inline void check_transposed(const Transposed& transposed, const Piece& piece, int64_t num_edges) {
    check_edges(piece, transposed.starts, transposed.starts + 1, transposed.dsts, transposed.num_dst,
                "the transpose names a destination that its block does not have", "call transpose() again");
    if (num_edges == 0) return;
    check_edges(piece, transposed.starts, transposed.starts + 1, transposed.edges, num_edges,
                "the transpose names an edge that its block does not have", "call transpose() again");
}

}  // namespace graphmill
