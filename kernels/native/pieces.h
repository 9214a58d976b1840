// Cuts rows of edges into pieces of about the same work, so that one row with very many edges does not hold up a team.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arrays.h"

namespace graphmill {

constexpr int64_t PIECE_EDGES = 512;     // work of a piece: its edges and its rows
constexpr int64_t HUB_EDGES = 8 * 1024;  // a row with more is shared by threads
constexpr int64_t HUB_VECTORS = 2;       // of columns that a thread takes of such a row at a time

// Rows from..to; of a hub, one row, only a part of its columns. A column is summed in edge order all the same.
struct Piece {
    int64_t from, to, column, column_end;
};

// Throws InputError unless every row's edges are a range of 0 .. num_edges-1; `what` names the rows for the message.
inline std::vector<Piece> cut_rows(int64_t num_rows, const int32_t* begins, const int32_t* ends, int64_t num_edges,
                                   int64_t width, int64_t hub_columns, const char* what) {
    std::vector<Piece> pieces;
    pieces.reserve(num_rows / PIECE_EDGES + num_edges / PIECE_EDGES + 2);
    int64_t from = 0, work = 0;
    const auto close = [&](int64_t to) {
        if (from < to) pieces.push_back({from, to, 0, width});
        from = to;
        work = 0;
    };
    for (int64_t i = 0; i < num_rows; ++i) {
        if (begins[i] < 0 || begins[i] > ends[i] || ends[i] > num_edges)
            throw InputError(std::string(what) + " are not ranges of its indices", "build blocks with Sampler");
        const int64_t edges = ends[i] - begins[i];
        const int64_t shares = edges > HUB_EDGES && hub_columns > 0 ? std::max<int64_t>(1, width / hub_columns) : 1;
        if (shares > 1) {
            close(i);
            for (int64_t k = 0; k < shares; ++k)
                pieces.push_back({i, i + 1, k * hub_columns, k + 1 < shares ? (k + 1) * hub_columns : width});
            from = i + 1;
            continue;
        }
        work += edges + 1;
        if (work >= PIECE_EDGES) close(i + 1);
    }
    close(num_rows);
    return pieces;
}

// The rows that are shared, each once and whole.
inline std::vector<Piece> hubs_of(const std::vector<Piece>& pieces, int64_t width) {
    std::vector<Piece> hubs;
    for (const Piece& piece : pieces) {
        if (piece.column == 0 && piece.column_end < width) hubs.push_back({piece.from, piece.to, 0, width});
    }
    return hubs;
}

// The largest of ids first..last, or at least `largest`; a negative id counts as a huge one.
inline uint32_t largest_id(const int32_t* ids, int64_t first, int64_t last, uint32_t largest) {
    for (int64_t e = first; e < last; ++e) largest = std::max(largest, static_cast<uint32_t>(ids[e]));
    return largest;
}

// Throws InputError unless the ids of the edges of these rows are in 0 .. num_ids-1.
inline void check_edges(const Piece& piece, const int32_t* begins, const int32_t* ends, const int32_t* ids,
                        int64_t num_ids, const char* problem, const char* remedy) {
    // Rows are short: looked through one by one, they took a fifth of a gradient's time. Most lie side by side.
    bool side_by_side = true;
    for (int64_t i = piece.from; i + 1 < piece.to; ++i) side_by_side &= ends[i] == begins[i + 1];
    uint32_t largest = 0;
    int64_t edges = 0;
    if (side_by_side) {
        edges = ends[piece.to - 1] - begins[piece.from];
        largest = largest_id(ids, begins[piece.from], ends[piece.to - 1], largest);
    } else {
        for (int64_t i = piece.from; i < piece.to; ++i) {
            edges += ends[i] - begins[i];
            largest = largest_id(ids, begins[i], ends[i], largest);
        }
    }
    if (edges > 0 && largest >= static_cast<uint64_t>(num_ids)) throw InputError(problem, remedy);
}

}  // namespace graphmill
