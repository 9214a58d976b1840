// Who wants each row of a segment's disk cache: its uses by batches, and where each of them reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/parallel.h"

namespace graphmill {

constexpr int64_t MEMBERS = 8192;  // members of a batch that a thread takes at once
constexpr int64_t AHEAD = 8;       // members between a prefetch and what is asked for
constexpr int32_t OPEN = -2;       // a use that has no place yet

// The batches and the rows that each of them wants, every row once.
struct Members {
    const int64_t* ptr;
    int64_t num_batches;
    const int32_t* rows;
    int threads;

    // Calls visit(first, last, use_of) for pieces of a batch's members; use_of(i) is to be called once for each, in order. `next` is
    // the next use of each row, by batch; what stands there in `value` may lie anywhere and is asked for ahead.
    template <class Visit>
    void pieces(int64_t batch, std::vector<int64_t>& next, const std::vector<int32_t>& value, Visit visit) const {
        parallel_for(ptr[batch + 1] - ptr[batch], MEMBERS, threads, [&](int64_t begin, int64_t end) {
            const int64_t first = ptr[batch] + begin, last = ptr[batch] + end;
            visit(first, last, [&](int64_t i) {
                if (i + 2 * AHEAD < last) __builtin_prefetch(&next[rows[i + 2 * AHEAD]], 1);
                if (i + AHEAD < last) __builtin_prefetch(&value[next[rows[i + AHEAD]]], 1);
                return next[rows[i]]++;
            });
        });
    }
};

// Who wants each row: the uses of row r are ptr[r] .. ptr[r+1], by batch. The place of a use is a row of the file.
struct RowUses {
    std::vector<int64_t> ptr;
    std::vector<int32_t> batch, place;

    RowUses(const Members& members, int64_t num_rows)
        : ptr(num_rows + 1, 0), batch(members.ptr[members.num_batches]), place(batch.size(), OPEN) {
        for (size_t i = 0; i < batch.size(); ++i) ++ptr[members.rows[i] + 1];
        for (int64_t row = 0; row < num_rows; ++row) ptr[row + 1] += ptr[row];
        std::vector<int64_t> next = begins();
        for (int64_t b = 0; b < members.num_batches; ++b)
            members.pieces(b, next, batch, [&](int64_t first, int64_t last, auto use_of) {
                for (int64_t i = first; i < last; ++i) batch[use_of(i)] = static_cast<int32_t>(b);
            });
    }

    std::vector<int64_t> begins() const { return {ptr.begin(), ptr.end() - 1}; }
};

}  // namespace graphmill
