// Sums over the out-neighbours of every node, from in-neighbour rows; see kernels/hotness/push.py.
#include "hotness/hotness.h"

#include "base/parallel.h"
#include "hotness/check_rows.h"

namespace graphmill {
namespace {

// Integer sums do not depend on their order, so relaxed additions give the same bytes at any number of threads. The columns of a row are
// neighbours in memory: two sums an edge cost little more than one. `sums` are those of the nodes from `low` on; others are left out.
template <class Id, int Columns>
void push_rows(Array<const int64_t> indptr, Array<const Id> indices, Array<const uint64_t> values, Array<uint64_t> sums, int64_t low,
               int64_t num_nodes, int threads) {
    constexpr int64_t AHEAD = 24;  // edges between the prefetch of a sum and its addition
    const int64_t* row = indptr.data();
    const Id* neighbours = indices.data();
    const uint64_t* value = values.data();
    uint64_t* sum = sums.data();
    const int64_t num_edges = indices.size();
    const uint64_t held = static_cast<uint64_t>(sums.shape(0));
    parallel_for(values.shape(0), 1 << 12, threads, [=](int64_t begin, int64_t end) {
        check_rows(row, neighbours, begin, end, num_nodes, num_edges);
        const auto place = [=](int64_t e) { return static_cast<uint64_t>(static_cast<int64_t>(neighbours[e]) - low); };
        for (int64_t u = begin; u < end; ++u) {
            const uint64_t* given = value + u * Columns;
            if (given[0] == 0 && given[Columns - 1] == 0) continue;
            for (int64_t e = row[u]; e < row[u + 1]; ++e) {
                if (e + AHEAD < num_edges && place(e + AHEAD) < held) __builtin_prefetch(sum + place(e + AHEAD) * Columns, 1);
                if (place(e) >= held) continue;
                for (int column = 0; column < Columns; ++column) {
                    __atomic_fetch_add(sum + place(e) * Columns + column, given[column], __ATOMIC_RELAXED);
                }
            }
        }
    });
}

}  // namespace

template <class Id>
void push(Array<const int64_t> indptr, Array<const Id> indices, Array<const uint64_t> values, Array<uint64_t> sums, int64_t low,
          int64_t num_nodes, int threads) {
    const bool pairs = values.dimensions() == 2;
    (pairs ? push_rows<Id, 2> : push_rows<Id, 1>)(indptr, indices, values, sums, low, num_nodes, threads);
}

template decltype(push<int32_t>) push<int32_t>;
template decltype(push<int64_t>) push<int64_t>;

}  // namespace graphmill
