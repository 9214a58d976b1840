// The memory traffic of sampling and nothing else: the roofline that benchmarks/sampling.py measures a sampler against.
#include "base/base.h"

#include <atomic>

#include "base/parallel.h"

namespace graphmill {

// For every destination one read of indptr; for every position one read of indices and one read-modify-write of its node's
// entry in the map. Everything is asked for ahead. The sum makes sure that nothing is left out. Ids must be in range.
template <class Id>
uint64_t random_gather(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> dst_ids, Array<const int64_t> positions,
                       Array<uint64_t> map, int threads) {
    const int64_t *starts = indptr.data(), *position = positions.data();
    const Id *node = dst_ids.data(), *ids = indices.data();
    uint64_t* entry = map.data();
    const int64_t num_dst = dst_ids.size(), num_edges = positions.size();
    constexpr int64_t NEAR = 24, FAR = 64;
    std::atomic<uint64_t> sum{0};
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

template decltype(random_gather<int32_t>) random_gather<int32_t>;
template decltype(random_gather<int64_t>) random_gather<int64_t>;

}  // namespace graphmill
