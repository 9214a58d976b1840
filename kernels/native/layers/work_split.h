// Cuts rows of edges into pieces of about the same work, so that one row with very many edges does not hold up a team.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace graphmill {

// Work of a piece, its edges and its rows: larger ones leave more of the rows that neighbours share to one core's cache, and sums of 64
// columns on two cores take a tenth less time; smaller ones keep every thread busy to the end.
constexpr int64_t PIECE_EDGES = 512, MOST_PIECE_EDGES = 4096, PIECES_A_THREAD = 8;
constexpr int64_t HUB_EDGES = 8 * 1024;  // a row with more is shared by threads
static_assert(HUB_EDGES > MOST_PIECE_EDGES);  // so that a hub ends its piece, where cut_rows looks for it
constexpr int64_t HUB_VECTORS = 2;       // of columns that a thread takes of such a row at a time

// Rows from..to; of a hub, one row, only a part of its columns. A column is summed in edge order all the same.
struct Piece {
    int64_t from, to, column, column_end;
};

inline int64_t piece_work(int64_t work, int threads) {
    return std::clamp(work / (PIECES_A_THREAD * threads), PIECE_EDGES, MOST_PIECE_EDGES);
}

// Cuts rows into pieces of about the same work; a hub's columns are shared in parts of `hub_columns`, where that is not 0. Throws
// InputError unless every row's edges are a range of 0 .. num_edges-1; `what` names the rows for the message.
std::vector<Piece> cut_rows(int64_t num_rows, const int32_t* begins, const int32_t* ends, int64_t num_edges, int64_t width,
                            int64_t hub_columns, int threads, const char* what);

// The rows that are shared, each once and whole.
std::vector<Piece> hubs_of(const std::vector<Piece>& pieces, int64_t width);

// Throws InputError unless the ids of the edges of these rows are in 0 .. num_ids-1.
void check_edges(const Piece& piece, const int32_t* begins, const int32_t* ends, const int32_t* ids, int64_t num_ids, const char* problem,
                 const char* remedy);

}  // namespace graphmill
