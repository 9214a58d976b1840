// A streaming partitioner; see kernels/chunks/ldg.py.
#include "chunks/chunks.h"

#include <vector>

namespace graphmill {
namespace {

constexpr int64_t AHEAD = 16;  // neighbours whose parts are asked for before their turn

// How full parts are, by several measures at once.
struct Loads {
    int num_parts, num_measures;
    const int64_t* capacity;  // by measure
    std::vector<int64_t> load;  // [part][measure]

    Loads(int parts, int measures, const int64_t* capacities)
        : num_parts(parts), num_measures(measures), capacity(capacities), load(size_t(parts) * measures, 0) {}

    void add(int part, const int64_t* weights, int sign) {
        for (int c = 0; c < num_measures; ++c) load[size_t(part) * num_measures + c] += sign * weights[c];
    }
    bool fits(int part, const int64_t* weights) const {
        for (int c = 0; c < num_measures; ++c) {
            if (weights[c] && load[size_t(part) * num_measures + c] + weights[c] > capacity[c]) return false;
        }
        return true;
    }
    // Share of the space that is left in the fullest measure, at most 1.
    double room(int part) const {
        double least = 1;
        for (int c = 0; c < num_measures; ++c) {
            if (!capacity[c]) continue;
            const double left = 1 - double(load[size_t(part) * num_measures + c]) / double(capacity[c]);
            least = left < least ? left : least;
        }
        return least;
    }
    // How much of what a node weighs lies where a part is already full: the sum over measures of weight x load, both in capacities.
    double strain(int part, const int64_t* weights) const {
        double sum = 0;
        for (int c = 0; c < num_measures; ++c) {
            if (!capacity[c]) continue;
            const double all = double(capacity[c]);
            sum += double(weights[c]) / all * (double(load[size_t(part) * num_measures + c]) / all);
        }
        return sum;
    }
    // Of the parts that a node fits into the one of the least strain; where it fits nowhere, of all.
    int easiest(const int64_t* weights) const {
        int best = 0;
        bool best_fits = false;
        double least = 0;
        for (int part = 0; part < num_parts; ++part) {
            const bool fit = fits(part, weights);
            const double found = strain(part, weights);
            if (part == 0 || fit > best_fits || (fit == best_fits && found < least)) {
                best = part;
                best_fits = fit;
                least = found;
            }
        }
        return best;
    }
};

}  // namespace

template <class Id>
int64_t ldg(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> order, Array<const int64_t> weights,
            Array<const int64_t> capacity, int num_parts, Array<int32_t> part_of) {
    const int64_t num_nodes = part_of.size(), num_measures = capacity.size();
    const int64_t *starts = indptr.data(), *all_weights = weights.data();
    const Id *sources = indices.data(), *sequence = order.size() ? order.data() : nullptr;
    int32_t* parts = part_of.data();
    Loads loads(num_parts, int(num_measures), capacity.data());
    std::vector<int64_t> found(num_parts, 0);
    std::vector<int32_t> seen;
    int64_t moved = 0;
    for (int64_t v = 0; v < num_nodes; ++v) {
        if (parts[v] >= 0) loads.add(parts[v], all_weights + v * num_measures, 1);
    }
    for (int64_t at = 0; at < num_nodes; ++at) {
        const int64_t v = sequence ? int64_t(sequence[at]) : at;
        const int64_t* own = all_weights + v * num_measures;
        const int32_t before = parts[v];
        if (before >= 0) loads.add(before, own, -1);
        seen.clear();
        for (int64_t e = starts[v]; e < starts[v + 1]; ++e) {
            if (e + AHEAD < starts[v + 1]) __builtin_prefetch(parts + sources[e + AHEAD]);
            const int32_t part = parts[sources[e]];
            if (part < 0 || int64_t(sources[e]) == v) continue;
            if (found[part]++ == 0) seen.push_back(part);
        }
        int best = -1;
        double best_score = 0;
        for (const int32_t part : seen) {
            if (loads.fits(part, own)) {
                const double score = double(found[part]) * loads.room(part);
                // Of equal scores the part that the node is in, else the first.
                if (best < 0 || score > best_score ||
                    (score == best_score && best != before && (part == before || part < best))) {
                    best = part;
                    best_score = score;
                }
            }
            found[part] = 0;
        }
        if (best < 0) best = before >= 0 && loads.fits(before, own) ? before : loads.easiest(own);
        moved += best != before;
        parts[v] = best;
        loads.add(best, own, 1);
    }
    return moved;
}

template <class Id>
void cut_matrix(Array<const int64_t> indptr, Array<const Id> indices, Array<const int32_t> part_of, int num_parts,
                Array<int64_t> counts) {
    const int64_t num_nodes = part_of.size();
    const int64_t* starts = indptr.data();
    const Id* sources = indices.data();
    const int32_t* parts = part_of.data();
    int64_t* out = counts.data();
    for (int64_t v = 0; v < num_nodes; ++v) {
        int64_t* row = out + int64_t(parts[v]) * num_parts;
        for (int64_t e = starts[v]; e < starts[v + 1]; ++e) {
            if (e + AHEAD < starts[v + 1]) __builtin_prefetch(parts + sources[e + AHEAD]);
            ++row[parts[sources[e]]];
        }
    }
}

template <class Id>
int64_t replicas(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> by_part, Array<const int64_t> bounds) {
    const int64_t num_nodes = indptr.size() - 1, num_parts = bounds.size() - 1;
    const int64_t *starts = indptr.data(), *ends = bounds.data();
    const Id *sources = indices.data(), *nodes = by_part.data();
    int64_t sum = 0;
    std::vector<int32_t> stamp(num_nodes, -1);
    for (int64_t part = 0; part < num_parts; ++part) {
        const auto visit = [&](int64_t u) {
            sum += stamp[u] != part;
            stamp[u] = int32_t(part);
        };
        for (int64_t k = ends[part]; k < ends[part + 1]; ++k) {
            const int64_t v = nodes[k];
            visit(v);
            for (int64_t e = starts[v]; e < starts[v + 1]; ++e) {
                if (e + AHEAD < starts[v + 1]) __builtin_prefetch(stamp.data() + sources[e + AHEAD], 1);
                visit(sources[e]);
            }
        }
    }
    return sum;
}

template decltype(ldg<int32_t>) ldg<int32_t>;
template decltype(ldg<int64_t>) ldg<int64_t>;
template decltype(cut_matrix<int32_t>) cut_matrix<int32_t>;
template decltype(cut_matrix<int64_t>) cut_matrix<int64_t>;
template decltype(replicas<int32_t>) replicas<int32_t>;
template decltype(replicas<int64_t>) replicas<int64_t>;

}  // namespace graphmill
