// The parts of kernels/rng.py whose speed matters.
#include "base/base.h"

#include "base/parallel.h"
#include "base/rng.h"

namespace graphmill {

template <class Id>
void absorb_ids(uint64_t key, Array<const Id> ids, Array<uint64_t> out, int threads) {
    const Id* node = ids.data();
    uint64_t* result = out.data();
    const int64_t count = ids.size();
    parallel_for(count, 1 << 16, threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) result[i] = absorb(key, static_cast<uint64_t>(node[i]));
    });
}

template <class Id>
void normal_int(uint64_t key, Array<const Id> ids, Array<int32_t> out, int threads) {
    const Id* node = ids.data();
    int32_t* result = out.data();
    const int64_t count = ids.size(), columns = out.shape(1);
    parallel_for(count, 1024, threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t row_key = absorb(key, static_cast<uint64_t>(node[i]));
            int32_t* row = result + i * columns;
            for (int64_t c = 0; c < columns; ++c) row[c] = byte_sum(draw(row_key, c)) - BYTE_SUM_MEAN;
        }
    });
}

template decltype(absorb_ids<int32_t>) absorb_ids<int32_t>;
template decltype(absorb_ids<int64_t>) absorb_ids<int64_t>;
template decltype(normal_int<int32_t>) normal_int<int32_t>;
template decltype(normal_int<int64_t>) normal_int<int64_t>;

}  // namespace graphmill
