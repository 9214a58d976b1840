// Clusters of nodes, and the graph in which each is one node; see kernels/chunks/clusters.py.
#include "chunks/chunks.h"

#include <algorithm>
#include <vector>

namespace graphmill {
namespace {

constexpr int64_t AHEAD = 16;  // neighbours whose clusters are asked for before their turn

// Sums by key of which few are set at a time.
struct Counter {
    std::vector<int64_t> sum;
    std::vector<int64_t> keys;  // those that are set, in the order of their first appearance

    explicit Counter(int64_t size) : sum(size, 0) {}
    void add(int64_t key, int64_t value) {
        if (sum[key] == 0) keys.push_back(key);
        sum[key] += value;
    }
    void clear() {
        for (const int64_t key : keys) sum[key] = 0;
        keys.clear();
    }
};

// An edge between two clusters as the sort takes it: the row stands in the upper half of the key, the column in the lower.
struct Single {
    uint64_t key;
    int64_t weight() const { return 1; }
};
struct Weighted {
    uint64_t key;
    int64_t sum;
    int64_t weight() const { return sum; }
};

// Calls visit(row, column, edge) for each edge between two clusters, and with `both` for its reverse.
template <class Id, class Visit>
void each_edge(Array<const int64_t> indptr, Array<const Id> indices, Array<const int32_t> cluster_of, bool both, const Visit& visit) {
    const int64_t num_nodes = indptr.size() - 1;
    const int64_t* starts = indptr.data();
    const Id* sources = indices.data();
    const int32_t* cluster = cluster_of.data();
    for (int64_t v = 0; v < num_nodes; ++v) {
        const int32_t row = cluster[v];
        for (int64_t e = starts[v]; e < starts[v + 1]; ++e) {
            if (e + AHEAD < starts[v + 1]) __builtin_prefetch(cluster + sources[e + AHEAD]);
            const int32_t column = cluster[sources[e]];
            if (column == row) continue;
            visit(row, column, e);
            if (both) visit(column, row, e);
        }
    }
}

template <class Edge>
void sort_as(Edge* edges, int64_t count, int64_t first, int64_t* distinct) {
    std::sort(edges, edges + count, [](const Edge& one, const Edge& other) { return one.key < other.key; });
    for (int64_t e = 0; e < count; ++e) distinct[int64_t(edges[e].key >> 32) - first] += e == 0 || edges[e].key != edges[e - 1].key;
}

template <class Edge>
void merge_as(const Edge* edges, int64_t count, int32_t* indices, int64_t* weights) {
    int64_t end = -1;
    for (int64_t e = 0; e < count; ++e) {
        if (e == 0 || edges[e].key != edges[e - 1].key) {
            indices[++end] = int32_t(edges[e].key);
            weights[end] = 0;
        }
        weights[end] += edges[e].weight();
    }
}

}  // namespace

template <class Id>
int64_t join_clusters(Array<const int64_t> indptr, Array<const Id> indices, Optional<const int64_t> edge_weights,
                      Array<const int64_t> weights, int64_t most, Array<const bool> roots, Array<Id> cluster_of,
                      Array<int64_t> sizes) {
    const int64_t num_nodes = cluster_of.size();
    const int64_t *starts = indptr.data(), *edges = pointer(edge_weights), *own = weights.data();
    const Id* sources = indices.data();
    const bool* is_root = roots.data();
    Id* cluster = cluster_of.data();
    int64_t* size = sizes.data();
    Counter counter(num_nodes);
    int64_t moved = 0;
    const auto move = [&](int64_t node, int64_t to) {
        size[cluster[node]] -= own[node];
        size[to] += own[node];
        cluster[node] = Id(to);
        ++moved;
    };
    for (int64_t v = 0; v < num_nodes; ++v) {
        for (int64_t e = starts[v]; e < starts[v + 1]; ++e) {
            if (e + AHEAD < starts[v + 1]) __builtin_prefetch(cluster + sources[e + AHEAD]);
            if (int64_t(sources[e]) != v) counter.add(cluster[sources[e]], edges ? edges[e] : 1);
        }
        const int64_t before = cluster[v];
        int64_t best = before, most_edges = counter.sum[before];
        for (const int64_t key : counter.keys) {
            const int64_t found = counter.sum[key];
            if (key == before || size[key] + own[v] > most) continue;
            if (found > most_edges || (found == most_edges && best != before && key < best)) {
                best = key;
                most_edges = found;
            }
        }
        counter.clear();
        if (best != before) move(v, best);
        // A node without in-neighbours goes to the first cluster with one of its out-neighbours.
        for (int64_t e = starts[v]; e < starts[v + 1]; ++e) {
            const int64_t u = sources[e];
            if (is_root[u] && cluster[u] == u && u != v && size[best] + own[u] <= most && best != u) move(u, best);
        }
    }
    return moved;
}

template <class Id>
void count_edges(Array<const int64_t> indptr, Array<const Id> indices, Array<const int32_t> cluster_of, bool both,
                 Array<int64_t> counts) {
    int64_t* out = counts.data();
    each_edge(indptr, indices, cluster_of, both, [&](int32_t row, int32_t, int64_t) { ++out[row]; });
}

template <class Id>
void scatter_edges(Array<const int64_t> indptr, Array<const Id> indices, Optional<const int64_t> edge_weights,
                   Array<const int32_t> cluster_of, bool both, Array<const int32_t> range_of, Array<int64_t> next,
                   Array<int64_t> edges) {
    const int64_t* weight = pointer(edge_weights);
    const int32_t* range = range_of.data();
    int64_t *place = next.data(), *out = edges.data();
    each_edge(indptr, indices, cluster_of, both, [&](int32_t row, int32_t column, int64_t e) {
        const int64_t at = place[range[row]]++, key = int64_t(row) << 32 | column;
        if (weight) {
            out[2 * at] = key;
            out[2 * at + 1] = weight[e];
        } else {
            out[at] = key;
        }
    });
}

void sort_edges(Array<int64_t> edges, bool weighted, int64_t first, Array<int64_t> distinct) {
    if (weighted) sort_as(reinterpret_cast<Weighted*>(edges.data()), edges.size() / 2, first, distinct.data());
    else sort_as(reinterpret_cast<Single*>(edges.data()), edges.size(), first, distinct.data());
}

void merge_edges(Array<const int64_t> edges, bool weighted, Array<int32_t> indices, Array<int64_t> weights) {
    if (weighted) merge_as(reinterpret_cast<const Weighted*>(edges.data()), edges.size() / 2, indices.data(), weights.data());
    else merge_as(reinterpret_cast<const Single*>(edges.data()), edges.size(), indices.data(), weights.data());
}

template decltype(join_clusters<int32_t>) join_clusters<int32_t>;
template decltype(join_clusters<int64_t>) join_clusters<int64_t>;
template decltype(count_edges<int32_t>) count_edges<int32_t>;
template decltype(count_edges<int64_t>) count_edges<int64_t>;
template decltype(scatter_edges<int32_t>) scatter_edges<int32_t>;
template decltype(scatter_edges<int64_t>) scatter_edges<int64_t>;

}  // namespace graphmill
