// Pieces of blocks and of their transposes, and whether their edges are sound; see block_view.h.
#include "layers/block_view.h"

#include <string>

#include "base/input_error.h"

namespace graphmill {

std::vector<Piece> cut_block(const BlockView& block, int64_t width, int64_t hub_columns, int threads) {
    return cut_rows(block.num_dst, block.begins, block.ends, block.num_edges, width, hub_columns, threads,
                    "the block's start and end");
}

void check_sources(const BlockView& block, const Piece& piece) {
    const std::string problem = "the block has a local source id outside 0.." + std::to_string(block.num_src - 1);
    check_edges(piece, block.begins, block.ends, block.sources, block.num_src, problem.c_str(),
                "indices are local: rows of src_ids, not global node ids");
}

std::vector<int32_t> own_rows(int64_t num_src, int64_t num_dst, const int32_t* place) {
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

std::vector<Piece> cut_transposed(const Transposed& transposed, int64_t width, int64_t hub_columns, int threads) {
    return cut_rows(transposed.num_src, transposed.starts, transposed.starts + 1, transposed.num_transposed, width, hub_columns, threads,
                    "the starts of the transpose");
}

void check_transposed(const Transposed& transposed, const Piece& piece, int64_t num_edges) {
    check_edges(piece, transposed.starts, transposed.starts + 1, transposed.dsts, transposed.num_dst,
                "the transpose names a destination that its block does not have", "call transpose() again");
    if (num_edges == 0) return;
    check_edges(piece, transposed.starts, transposed.starts + 1, transposed.edges, num_edges,
                "the transpose names an edge that its block does not have", "call transpose() again");
}

}  // namespace graphmill
