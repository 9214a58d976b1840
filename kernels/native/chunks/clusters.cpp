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

// Rows that grow one after the other.
struct Rows {
    Buffer<int64_t> indptr, weights;
    Buffer<int32_t> indices;
    int64_t end = 0;

    explicit Rows(int64_t count) : indptr(count + 1), weights(count), indices(count) { indptr[0] = 0; }
    // Writes a counter as the next row, by ascending key, and clears it.
    void close(int64_t row, Counter& counter) {
        std::sort(counter.keys.begin(), counter.keys.end());
        indices.grow(end + int64_t(counter.keys.size()));
        weights.grow(end + int64_t(counter.keys.size()));
        for (const int64_t key : counter.keys) {
            indices[end] = int32_t(key);
            weights[end++] = counter.sum[key];
        }
        indptr[row + 1] = end;
        counter.clear();
    }
    WeightedRows finish() {
        indices.shrink(end);
        weights.shrink(end);
        return {std::move(indptr), std::move(indices), std::move(weights)};
    }
};

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
WeightedRows contract(Array<const int64_t> indptr, Array<const Id> indices, Optional<const int64_t> edge_weights,
                      Array<const int32_t> cluster_of, Array<const Id> by_cluster, Array<const int64_t> bounds) {
    const int64_t count = bounds.size() - 1;
    const int64_t *starts = indptr.data(), *edges = pointer(edge_weights), *ends = bounds.data();
    const Id *sources = indices.data(), *nodes = by_cluster.data();
    const int32_t* cluster = cluster_of.data();
    Counter counter(count);
    Rows rows(count);
    for (int64_t row = 0; row < count; ++row) {
        for (int64_t k = ends[row]; k < ends[row + 1]; ++k) {
            const int64_t v = nodes[k];
            for (int64_t e = starts[v]; e < starts[v + 1]; ++e) {
                if (e + AHEAD < starts[v + 1]) __builtin_prefetch(cluster + sources[e + AHEAD]);
                if (cluster[sources[e]] != row) counter.add(cluster[sources[e]], edges ? edges[e] : 1);
            }
        }
        rows.close(row, counter);
    }
    return rows.finish();
}

WeightedRows both_directions(Array<const int64_t> indptr, Array<const int32_t> indices, Array<const int64_t> weights) {
    const int64_t count = indptr.size() - 1, edges = indices.size();
    const int64_t *starts = indptr.data(), *own = weights.data();
    const int32_t* sources = indices.data();
    std::vector<int64_t> next(count + 1, 0);
    std::vector<int32_t> reversed(edges);
    std::vector<int64_t> reversed_weights(edges);
    for (int64_t e = 0; e < edges; ++e) ++next[sources[e] + 1];
    for (int64_t row = 0; row < count; ++row) next[row + 1] += next[row];
    const std::vector<int64_t> begins(next);
    for (int64_t row = 0; row < count; ++row) {
        for (int64_t e = starts[row]; e < starts[row + 1]; ++e) {
            const int64_t place = next[sources[e]]++;
            reversed[place] = int32_t(row);
            reversed_weights[place] = own[e];
        }
    }
    Counter counter(count);
    Rows rows(count);
    for (int64_t row = 0; row < count; ++row) {
        for (int64_t e = starts[row]; e < starts[row + 1]; ++e) counter.add(sources[e], own[e]);
        for (int64_t e = begins[row]; e < begins[row + 1]; ++e) counter.add(reversed[e], reversed_weights[e]);
        rows.close(row, counter);
    }
    return rows.finish();
}

template decltype(join_clusters<int32_t>) join_clusters<int32_t>;
template decltype(join_clusters<int64_t>) join_clusters<int64_t>;
template decltype(contract<int32_t>) contract<int32_t>;
template decltype(contract<int64_t>) contract<int64_t>;

}  // namespace graphmill
