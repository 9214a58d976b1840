// Norms of rows in a fixed order of additions; see kernels/history/row_norms.py.
#include "history/history.h"

#include <cmath>

#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int LANES = 32;
constexpr int64_t PIECE = 128;  // rows that a thread takes at once

template <class T>
float norm_of(const T* row, int64_t width) {
    double sums[LANES] = {};
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        for (int lane = 0; lane < LANES; ++lane) {
            const double value = row[c + lane];
            sums[lane] += value * value;
        }
    }
    for (int lane = 0; c + lane < width; ++lane) {
        const double value = row[c + lane];
        sums[lane] += value * value;
    }
    for (int half = LANES / 2; half; half /= 2) {
        for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    return static_cast<float>(std::sqrt(sums[0]));
}

}  // namespace

template <class T>
void row_norms(Array<const T> rows, Array<float> out, int threads) {
    const T* from = rows.data();
    float* to = out.data();
    const int64_t num_rows = rows.shape(0), width = rows.shape(1);
    parallel_for(num_rows, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = norm_of(from + i * width, width);
    });
}

template decltype(row_norms<float>) row_norms<float>;
template decltype(row_norms<double>) row_norms<double>;

}  // namespace graphmill
