// Cuts rows of edges into pieces; see work_split.h.
#include "layers/work_split.h"

#include <limits>
#include <string>

#include "base/input_error.h"

namespace graphmill {
namespace {

// Throws InputError unless every row's edges are a range of 0 .. num_edges-1; `what` names the rows for the message. Returns whether each
// row's edges begin where those of the row before it end.
bool check_ranges(int64_t num_rows, const int32_t* begins, const int32_t* ends, int64_t num_edges, const char* what) {
    // In words whose sign tells, without a branch, so that the compiler takes a vector at a time: this is the serial part of the work.
    uint32_t bad = 0, apart = 0;
    const auto last = static_cast<uint32_t>(std::min<int64_t>(num_edges, std::numeric_limits<int32_t>::max()));
    for (int64_t i = 0; i < num_rows; ++i) {
        const uint32_t begin = begins[i], end = ends[i];
        bad |= begin | end | (end - begin) | (last - end);
    }
    if (ends != begins + 1) {  // not two views of one array
        for (int64_t i = 0; i + 1 < num_rows; ++i) apart |= ends[i] ^ begins[i + 1];
    }
    if (bad >> 31) throw InputError(std::string(what) + " are not ranges of its indices", "build blocks with Sampler");
    return apart == 0;
}

// The largest of ids first..last, or at least `largest`; a negative id counts as a huge one.
uint32_t largest_id(const int32_t* ids, int64_t first, int64_t last, uint32_t largest) {
    for (int64_t e = first; e < last; ++e) largest = std::max(largest, static_cast<uint32_t>(ids[e]));
    return largest;
}

}  // namespace

std::vector<Piece> cut_rows(int64_t num_rows, const int32_t* begins, const int32_t* ends, int64_t num_edges, int64_t width,
                            int64_t hub_columns, int threads, const char* what) {
    const bool side_by_side = check_ranges(num_rows, begins, ends, num_edges, what);
    const int64_t least = piece_work(num_rows + num_edges, threads);
    std::vector<Piece> pieces;
    pieces.reserve((num_rows + num_edges) / least + 2);
    // The first row at which the work since row `from` is enough for a piece. Found by halving, as their edges lie side by side.
    const auto enough = [&](int64_t from) {
        int64_t low = from, high = std::min(num_rows, from + least);
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (int64_t{ends[middle]} - begins[from] + middle + 1 - from >= least) high = middle;
            else low = middle + 1;
        }
        return low;
    };
    const auto enough_apart = [&](int64_t from) {
        int64_t work = 0, i = from;
        while (i < num_rows && (work += ends[i] - begins[i] + 1) < least) ++i;
        return i;
    };
    for (int64_t from = 0; from < num_rows;) {
        const int64_t row = side_by_side ? enough(from) : enough_apart(from);
        const bool hub = row < num_rows && ends[row] - begins[row] > HUB_EDGES && hub_columns > 0;
        const int64_t shares = hub ? std::max<int64_t>(1, width / hub_columns) : 1;
        const int64_t to = std::min(num_rows, shares > 1 ? row : row + 1);
        if (from < to) pieces.push_back({from, to, 0, width});
        for (int64_t k = 0; shares > 1 && k < shares; ++k)
            pieces.push_back({row, row + 1, k * hub_columns, k + 1 < shares ? (k + 1) * hub_columns : width});
        from = row + 1;
    }
    return pieces;
}

std::vector<Piece> hubs_of(const std::vector<Piece>& pieces, int64_t width) {
    std::vector<Piece> hubs;
    for (const Piece& piece : pieces) {
        if (piece.column == 0 && piece.column_end < width) hubs.push_back({piece.from, piece.to, 0, width});
    }
    return hubs;
}

void check_edges(const Piece& piece, const int32_t* begins, const int32_t* ends, const int32_t* ids, int64_t num_ids, const char* problem,
                 const char* remedy) {
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
