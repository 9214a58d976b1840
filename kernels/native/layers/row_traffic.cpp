// The memory traffic of an aggregation and nothing else: the roofline that benchmarks/aggregate.py measures it against.
#include "layers/layers.h"

#include <atomic>

#include "base/nontemporal.h"
#include "base/parallel.h"
#include "base/simd.h"
#include "layers/tiles.h"
#include "rows/row_prefetch.h"

namespace graphmill {

// Reads the rows of a table that ids name, asked for ahead, and streams as many bytes as `out` has to it. The sum makes sure that no row
// is left out. Ids must be in range.
float row_traffic(Array<const float> table, Array<const int32_t> ids, Array<float> out, int threads) {
    const float* rows = table.data();
    const int32_t* row_of = ids.data();
    char* output = reinterpret_cast<char*>(out.data());
    const int64_t width = table.shape(1), num_ids = ids.size(), bytes = out.size() * int64_t(sizeof(float)), step = 32 * 1024;
    std::atomic<int64_t> sum{0};
    const int64_t piece = piece_work(num_ids, threads);
    parallel_for(num_ids, piece, threads, [&](int64_t begin, int64_t end) {
        Vector<float> mine{};
        for (int64_t k = begin; k < end; ++k) {
            if (k + EDGES_AHEAD < num_ids) {
                const float* next = rows + row_of[k + EDGES_AHEAD] * width;
                for (int64_t c = 0; c < std::min(width, LINES_AHEAD * LANES<float>); c += LANES<float>)
                    __builtin_prefetch(next + c);
            }
            const float* row = rows + row_of[k] * width;
            int64_t c = 0;
            for (; c + LANES<float> <= width; c += LANES<float>) mine += load(row + c);
            for (; c < width; ++c) mine[0] += row[c];
        }
        for (int64_t lane = 0; lane < LANES<float>; ++lane) sum += static_cast<int64_t>(mine[lane]);
    });
    parallel_for((bytes + step - 1) / step, 1, threads, [&](int64_t first, int64_t last) {
        alignas(64) char zeros[2 * 64 * 16] = {};
        for (int64_t at = first * step; at < std::min(bytes, last * step); at += 64 * 16) {
            const int64_t count = std::min<int64_t>(64 * 16, std::min(bytes, last * step) - at);
            stream_bytes(output + at, zeros + (reinterpret_cast<uintptr_t>(output + at) & 63), count);
        }
    });
    return static_cast<float>(sum.load());
}

}  // namespace graphmill
