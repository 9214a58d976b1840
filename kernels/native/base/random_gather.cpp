// The memory traffic of sampling and nothing else: the roofline that benchmarks/sampling.py measures a sampler against.
#include <atomic>

#include "base/arrays.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

// For every destination one read of indptr; for every position one read of indices and one read-modify-write of its node's
// entry in the map. Everything is asked for ahead. The sum makes sure that nothing is left out. Ids must be in range.
template <class Id>
uint64_t random_gather(Array<int64_t> indptr, Array<Id> indices, Array<Id> dst_ids, Array<int64_t> positions,
                       Array<uint64_t> map, int threads) {
    const int64_t *starts = indptr.data(), *position = positions.data();
    const Id *node = dst_ids.data(), *ids = indices.data();
    uint64_t* entry = map.mutable_data();
    const int64_t num_dst = dst_ids.size(), num_edges = positions.size();
    constexpr int64_t NEAR = 24, FAR = 64;
    std::atomic<uint64_t> sum{0};
    py::gil_scoped_release unlocked;
    parallel_for(num_dst, 1 << 12, threads, [&](int64_t begin, int64_t end) {
        uint64_t mine = 0;
        for (int64_t i = begin; i < end; ++i) {
            if (i + NEAR < end) {
                __builtin_prefetch(starts + node[i + NEAR]);
                __builtin_prefetch(starts + node[i + NEAR] + 1);  // may lie on the next line
            }
            mine += static_cast<uint64_t>(starts[node[i] + 1] - starts[node[i]]);
        }
        sum += mine;
    });
    parallel_for(num_edges, 1 << 14, threads, [&](int64_t begin, int64_t end) {
        uint64_t mine = 0;
        for (int64_t e = begin; e < end; ++e) {
            if (e + FAR < end) __builtin_prefetch(ids + position[e + FAR]);
            if (e + NEAR < end) __builtin_prefetch(entry + ids[position[e + NEAR]], 1);
            uint64_t* place = entry + ids[position[e]];
            // Threads may meet at a hub; a lost increment does not matter here.
            const uint64_t seen = __atomic_load_n(place, __ATOMIC_RELAXED);
            __atomic_store_n(place, seen + 1, __ATOMIC_RELAXED);
            mine += seen;
        }
        sum += mine;
    });
    return sum;
}

template <class Id>
void bind(py::module_& m) {
    m.def("random_gather", &random_gather<Id>, py::arg("indptr").noconvert(), py::arg("indices").noconvert(),
          py::arg("dst_ids").noconvert(), py::arg("positions").noconvert(), py::arg("map").noconvert(),
          py::arg("threads"));
}

}  // namespace

void bind_random_gather(py::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
}

}  // namespace graphmill
