// The parts of kernels/rng.py whose speed matters.
#include "base/arrays.h"
#include "base/parallel.h"
#include "base/rng.h"

namespace graphmill {
namespace {

template <class Id>
void absorb_ids(uint64_t key, Array<Id> ids, Array<uint64_t> out, int threads) {
    const Id* node = ids.data();
    uint64_t* result = out.mutable_data();
    const int64_t count = ids.size();
    py::gil_scoped_release unlocked;
    parallel_for(count, 1 << 16, threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) result[i] = absorb(key, static_cast<uint64_t>(node[i]));
    });
}

template <class Id>
void normal_int(uint64_t key, Array<Id> ids, Array<int32_t> out, int threads) {
    const Id* node = ids.data();
    int32_t* result = out.mutable_data();
    const int64_t count = ids.size(), columns = out.shape(1);
    py::gil_scoped_release unlocked;
    parallel_for(count, 1024, threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t row_key = absorb(key, static_cast<uint64_t>(node[i]));
            int32_t* row = result + i * columns;
            for (int64_t c = 0; c < columns; ++c) row[c] = byte_sum(draw(row_key, c)) - BYTE_SUM_MEAN;
        }
    });
}

template <class Id>
void bind(py::module_& m) {
    m.def("absorb_ids", &absorb_ids<Id>, py::arg("key"), py::arg("ids").noconvert(), py::arg("out").noconvert(),
          py::arg("threads"));
    m.def("normal_int", &normal_int<Id>, py::arg("key"), py::arg("ids").noconvert(), py::arg("out").noconvert(),
          py::arg("threads"));
}

}  // namespace

void bind_random(py::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
}

}  // namespace graphmill
