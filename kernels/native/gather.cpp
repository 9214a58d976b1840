// Copies chosen rows of a table and converts them on the way; see kernels/gather.py.
#include <cstring>
#include <type_traits>

#include "arrays.h"
#include "half.h"
#include "parallel.h"

namespace graphmill {

constexpr int64_t AHEAD = 4;          // rows between the prefetch of a row and its copy
constexpr int64_t PREFETCHED = 1024;  // bytes of a row that are asked for; the hardware follows up

template <class From, class To>
static inline void copy_row(const From* row, To* out, int64_t width) {
    if constexpr (std::is_same_v<From, To>) {
        std::memcpy(out, row, width * sizeof(To));
    } else {
        for (int64_t c = 0; c < width; ++c) out[c] = static_cast<To>(row[c]);
    }
}

#ifdef __F16C__
// Eight at a time: the compiler does not vectorise the scalar intrinsic.
template <>
inline void copy_row<Half, float>(const Half* row, float* out, int64_t width) {
    int64_t c = 0;
    for (; c + 8 <= width; c += 8) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + c));
        _mm256_storeu_ps(out + c, _mm256_cvtph_ps(halves));
    }
    for (; c < width; ++c) out[c] = static_cast<float>(row[c]);
}
#endif

template <class Id>
static void check_ids(const Id* ids, int64_t count, int64_t num_rows) {
    bool sound = true;
    for (int64_t i = 0; i < count; ++i) sound &= (ids[i] >= 0) & (ids[i] < num_rows);
    if (sound) return;
    for (int64_t i = 0; i < count; ++i) {
        if (ids[i] >= 0 && ids[i] < num_rows) continue;
        throw InputError("node id " + std::to_string(ids[i]) + " at position " + std::to_string(i) +
                             " is not a row of a table of " + std::to_string(num_rows) + " rows",
                         "gather from the table of the graph that the ids belong to");
    }
}

template <class From, class To, class Id>
static void gather_rows(const char* table, int64_t row_bytes, int64_t num_rows, const Id* ids, int64_t count, To* out,
                        int64_t width, int threads) {
    check_ids(ids, count, num_rows);
    const int64_t asked = std::min<int64_t>(width * sizeof(From), PREFETCHED);
    const int64_t piece = std::max<int64_t>(16, 65536 / std::max<int64_t>(1, width * sizeof(To)));
    parallel_for(count, piece, threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            if (i + AHEAD < end) {
                const char* next = table + ids[i + AHEAD] * row_bytes;
                for (int64_t byte = 0; byte < asked; byte += 64) __builtin_prefetch(next + byte);
            }
            copy_row(reinterpret_cast<const From*>(table + ids[i] * row_bytes), out + i * width, width);
        }
    });
}

// `kind` and item size name the table's dtype as NumPy does; the front door has checked that it is one of these.
template <class To, class Id>
static void gather(py::array table, Array<Id> ids, Array<To> out, int threads) {
    const char* rows = static_cast<const char*>(table.data());
    const int64_t stride = table.strides(0), num_rows = table.shape(0), width = table.shape(1);
    const Id* node = ids.data();
    To* result = out.mutable_data();
    const int64_t count = ids.size();
    const char kind = table.dtype().kind();
    const auto size = table.dtype().itemsize();
    py::gil_scoped_release unlocked;
    const auto from = [&](auto zero) {
        gather_rows<decltype(zero)>(rows, stride, num_rows, node, count, result, width, threads);
    };
    if (kind == 'f' && size == 4) from(float{});
    else if (kind == 'f' && size == 2) from(Half{});
    else if (kind == 'f' && size == 8) from(double{});
    else if (kind == 'i' && size == 1) from(int8_t{});
    else if (kind == 'u' && size == 1) from(uint8_t{});
    else throw InputError("this table dtype cannot be gathered", "use float16, float32, float64, int8 or uint8");
}

template <class To, class Id>
static void bind(py::module_& m) {
    m.def("gather", &gather<To, Id>, py::arg("table"), py::arg("node_ids").noconvert(), py::arg("out").noconvert(),
          py::arg("threads"));
}

void bind_gather(py::module_& m) {
    bind<float, int32_t>(m);
    bind<float, int64_t>(m);
    bind<double, int32_t>(m);
    bind<double, int64_t>(m);
}

}  // namespace graphmill
