// The canonical order of edges with attributes; see kernels/graph/edge_order.py.
#include "graph/graph.h"

#include <algorithm>

#include "base/parallel.h"

namespace graphmill {
namespace {

// What decides an edge's place in its row: (edge type, source) in one word, then the tie, then where it stood.
struct Entry {
    uint64_t key;
    int64_t tie;
    int32_t position;
    bool operator<(const Entry& other) const {
        if (key != other.key) return key < other.key;
        return tie != other.tie ? tie < other.tie : position < other.position;
    }
};

constexpr int SOURCE_BITS = 56;  // a type of 8 bits stands above the source

}  // namespace

template <class Id>
Buffer<int32_t> edge_order(Array<const int32_t> rows, Array<const Id> src, Optional<const uint8_t> types, Optional<const int64_t> ties,
                           int64_t num_rows, int threads) {
    const int64_t size = rows.size();
    const int32_t* row = rows.data();
    const Id* source = src.data();
    const uint8_t* type = pointer(types);
    const int64_t* tie = pointer(ties);
    std::vector<int64_t> place(num_rows + 1, 0);
    for (int64_t e = 0; e < size; ++e) ++place[row[e] + 1];
    for (int64_t v = 0; v < num_rows; ++v) place[v + 1] += place[v];
    Buffer<Entry> entries(size);
    {
        std::vector<int64_t> cursor(place.begin(), place.end() - 1);
        for (int64_t e = 0; e < size; ++e) {
            const uint64_t high = type ? static_cast<uint64_t>(type[e]) << SOURCE_BITS : 0;
            entries[cursor[row[e]]++] = {high | static_cast<uint64_t>(source[e]), tie ? tie[e] : 0, static_cast<int32_t>(e)};
        }
    }
    Buffer<int32_t> order(size);
    parallel_for(num_rows, 4096, threads, [&](int64_t first, int64_t last) {
        for (int64_t v = first; v < last; ++v) {
            std::sort(entries.data() + place[v], entries.data() + place[v + 1]);
            for (int64_t e = place[v]; e < place[v + 1]; ++e) order[e] = entries[e].position;
        }
    });
    return order;
}

template decltype(edge_order<int32_t>) edge_order<int32_t>;
template decltype(edge_order<int64_t>) edge_order<int64_t>;

}  // namespace graphmill
