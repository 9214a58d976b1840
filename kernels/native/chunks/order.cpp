// The undirected graph inside a part, and its reverse Cuthill-McKee order; see kernels/chunks/order.py.
#include "chunks/chunks.h"

#include <algorithm>
#include <vector>

#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 4096;  // rows that a thread takes at a time

class CuthillMcKee {
  public:
    CuthillMcKee(const int64_t* xadj, const int32_t* adjacency, int64_t count)
        : xadj_(xadj), adjacency_(adjacency), count_(count), level_(count, 0) {}

    // Components come by their least degree; ties everywhere go to the lower number.
    void order(int32_t* out) {
        std::vector<int32_t> by_degree(count_);
        for (int64_t v = 0; v < count_; ++v) by_degree[v] = static_cast<int32_t>(v);
        std::sort(by_degree.begin(), by_degree.end(), [&](int32_t a, int32_t b) { return less(a, b); });
        std::vector<char> done(count_, 0);
        int64_t size = 0;
        for (const int32_t seed : by_degree) {
            if (done[seed]) continue;
            const int64_t begin = size;
            const int32_t first = periphery(seed);
            out[size++] = first;
            done[first] = 1;
            for (int64_t place = begin; place < size; ++place) {
                const int64_t low = size;
                for (int64_t edge = xadj_[out[place]]; edge < xadj_[out[place] + 1]; ++edge) {
                    const int32_t node = adjacency_[edge];
                    if (!done[node]) done[node] = 1, out[size++] = node;
                }
                std::sort(out + low, out + size, [&](int32_t a, int32_t b) { return less(a, b); });
            }
        }
        std::reverse(out, out + count_);
    }

  private:
    int64_t degree(int32_t node) const { return xadj_[node + 1] - xadj_[node]; }

    bool less(int32_t a, int32_t b) const { return degree(a) != degree(b) ? degree(a) < degree(b) : a < b; }

    // A node at an end of its component: breadth-first searches from the end of the one before, while they get deeper (George and Liu).
    int32_t periphery(int32_t seed) {
        int64_t deepest = -1;
        for (int32_t from = seed;;) {
            const auto [depth, last] = search(from);
            if (depth <= deepest) return from;
            deepest = depth;
            if (depth == 0) return from;
            from = last;
        }
    }

    // (depth, node of least degree in the last level) of a breadth-first search.
    std::pair<int64_t, int32_t> search(int32_t from) {
        ++stamp_;
        frontier_.assign(1, from);
        level_[from] = stamp_;
        int64_t depth = -1;
        int32_t last = from;
        while (!frontier_.empty()) {
            ++depth;
            last = *std::min_element(frontier_.begin(), frontier_.end(), [&](int32_t a, int32_t b) { return less(a, b); });
            below_.clear();
            for (const int32_t node : frontier_) {
                for (int64_t edge = xadj_[node]; edge < xadj_[node + 1]; ++edge) {
                    const int32_t other = adjacency_[edge];
                    if (level_[other] != stamp_) level_[other] = stamp_, below_.push_back(other);
                }
            }
            frontier_.swap(below_);
        }
        return {depth, last};
    }

    const int64_t* xadj_;
    const int32_t* adjacency_;
    int64_t count_;
    std::vector<int64_t> level_;  // number of the search that met a node last
    int64_t stamp_ = 0;
    std::vector<int32_t> frontier_, below_;
};

}  // namespace

template <class Id>
std::pair<Buffer<int64_t>, Buffer<int32_t>> part_graph(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> nodes,
                                                       Array<const int32_t> local, int threads) {
    const int64_t *first = indptr.data(), count = nodes.size();
    const Id *sources = indices.data(), *ids = nodes.data();
    const int32_t* local_of = local.data();
    Buffer<int64_t> xadj(count + 1);
    std::vector<int64_t> starts(count + 1, 0);
    const auto for_edges = [&](auto visit) {
        for (int64_t v = 0; v < count; ++v) {
            for (int64_t edge = first[ids[v]]; edge < first[ids[v] + 1]; ++edge) {
                const int32_t u = local_of[sources[edge]];
                if (u >= 0 && u != v) visit(static_cast<int32_t>(v), u);
            }
        }
    };
    for_edges([&](int32_t v, int32_t u) { ++starts[v + 1], ++starts[u + 1]; });
    for (int64_t v = 0; v < count; ++v) starts[v + 1] += starts[v];
    std::vector<int64_t> next(starts.begin(), starts.end() - 1);
    Buffer<int32_t> adjacency(starts[count]);
    for_edges([&](int32_t v, int32_t u) { adjacency[next[v]++] = u, adjacency[next[u]++] = v; });
    parallel_for(count, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) {
            int32_t *low = adjacency.data() + starts[v], *high = adjacency.data() + starts[v + 1];
            std::sort(low, high);
            next[v] = std::unique(low, high) - low;
        }
    });
    xadj[0] = 0;
    for (int64_t v = 0; v < count; ++v) {
        std::copy_n(adjacency.data() + starts[v], next[v], adjacency.data() + xadj[v]);
        xadj[v + 1] = xadj[v] + next[v];
    }
    adjacency.shrink(xadj[count]);
    return {std::move(xadj), std::move(adjacency)};
}

Buffer<int32_t> reverse_cuthill_mckee(Array<const int64_t> xadj, Array<const int32_t> adjacency) {
    const int64_t count = xadj.size() - 1;
    Buffer<int32_t> out(count);
    CuthillMcKee(xadj.data(), adjacency.data(), count).order(out.data());
    return out;
}

template decltype(part_graph<int32_t>) part_graph<int32_t>;
template decltype(part_graph<int64_t>) part_graph<int64_t>;

}  // namespace graphmill
