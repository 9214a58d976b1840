// Counter-based dropout; see kernels/layers/dropout.py.
#include "base/arrays.h"
#include "base/parallel.h"
#include "base/rng.h"

namespace graphmill {
namespace {

constexpr int64_t DRAWS = 16;         // draws made together, so that the compiler vectorises them
constexpr int64_t SPAN = 4 * DRAWS;    // columns they serve: four 16-bit lanes each

template <class T>
void drop_row(const T* row, T* out, int64_t width, uint64_t row_key, uint32_t threshold, T scale) {
    for (int64_t column = 0; column < width; column += SPAN) {
        uint64_t bits[DRAWS];
        for (int64_t g = 0; g < DRAWS; ++g) bits[g] = draw(row_key, column / 4 + g);
        uint16_t lanes[SPAN];
        for (int64_t g = 0; g < DRAWS; ++g) {
            for (int64_t lane = 0; lane < 4; ++lane) {
                lanes[4 * g + lane] = static_cast<uint16_t>(bits[g] >> (16 * lane));
            }
        }
        const int64_t span = width - column < SPAN ? width - column : SPAN;
        for (int64_t c = 0; c < span; ++c) out[column + c] = lanes[c] < threshold ? T(0) : row[column + c] * scale;
    }
}

template <class T, class Id>
void dropout(Array<T> x, Array<Id> ids, uint64_t key, uint32_t threshold, Array<T> out, int threads) {
    const T* input = x.data();
    const Id* node = ids.data();
    T* output = out.mutable_data();
    const int64_t count = x.shape(0), width = x.shape(1);
    py::gil_scoped_release unlocked;
    const T scale = T(65536) / static_cast<T>(65536 - threshold);
    const int64_t piece = std::max<int64_t>(8, 65536 / std::max<int64_t>(1, width));
    parallel_for(count, piece, threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t row_key = absorb(key, static_cast<uint64_t>(node[i]));
            drop_row(input + i * width, output + i * width, width, row_key, threshold, scale);
        }
    });
}

template <class T, class Id>
void bind(py::module_& m) {
    m.def("dropout", &dropout<T, Id>, py::arg("x").noconvert(), py::arg("node_ids").noconvert(), py::arg("key"),
          py::arg("threshold"), py::arg("out").noconvert(), py::arg("threads"));
}

}  // namespace

void bind_dropout(py::module_& m) {
    bind<float, int32_t>(m);
    bind<float, int64_t>(m);
    bind<double, int32_t>(m);
    bind<double, int64_t>(m);
}

}  // namespace graphmill
