// Norms of rows in a fixed order of additions; see kernels/history/row_norms.py.
#include <cmath>

#include "base/arrays.h"
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

template <class T>
void row_norms(Array<T> rows, py::array_t<float, py::array::c_style> out, int threads) {
    const T* from = rows.data();
    float* to = out.mutable_data();
    const int64_t num_rows = rows.shape(0), width = rows.shape(1);
    py::gil_scoped_release unlocked;
    parallel_for(num_rows, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = norm_of(from + i * width, width);
    });
}

}  // namespace

void bind_row_norms(py::module_& m) {
    m.def("row_norms", &row_norms<float>, py::arg("rows").noconvert(), py::arg("out").noconvert(), py::arg("threads"));
    m.def("row_norms", &row_norms<double>, py::arg("rows").noconvert(), py::arg("out").noconvert(), py::arg("threads"));
}

}  // namespace graphmill
