// What rows drawn by weight add to the exponents of their in-neighbours; see kernels/hotness/weighted_reach.py for the rule.
#include "hotness/hotness.h"

#include <algorithm>

#include "base/exact_math.h"
#include "base/parallel.h"
#include "hotness/check_rows.h"
#include "sampling/alias.h"

namespace graphmill {
namespace {

constexpr double SUREST = 1 - 0x1p-20;  // keeps logarithms finite
constexpr int64_t PIECE = 1 << 10;      // rows that a thread takes at a time
constexpr int MOST_STEPS = 40;          // of Newton's method

// The probabilities of the neighbours of a node, and how many have one.
int64_t read_chances(int64_t node, const AliasEntry* row, int64_t degree, std::vector<uint64_t>& mass, std::vector<double>& chance) {
    mass.resize(degree);
    chance.resize(degree);
    if (!alias_masses(row, degree, mass.data())) refuse_alias(node);
    const double whole = static_cast<double>(degree) * static_cast<double>(ALIAS_WHOLE);
    int64_t support = 0;
    for (int64_t i = 0; i < degree; ++i) {
        chance[i] = row[i].threshold ? static_cast<double>(mass[i]) / whole : 0;
        support += row[i].threshold != 0;
    }
    return support;
}

// The time at which so many of the neighbours have arrived on average, each at the rate of its probability. Newton's method from below:
// the number is concave in time, so no step goes too far.
double arrival_time(const std::vector<double>& chance, double wanted) {
    double time = wanted;
    for (int step = 0; step < MOST_STEPS; ++step) {
        double arrived = 0, slope = 0;
        for (const double p : chance) {
            const double here = one_minus_exp(time * p);
            arrived += here;
            slope += p * (1 - here);
        }
        if (wanted - arrived < 1e-4 * wanted || slope < 1e-30) break;
        time += (wanted - arrived) / slope;
    }
    return time;
}

double power(double base, int64_t exponent) {
    double result = 1;
    for (; exponent; exponent >>= 1, base *= base) {
        if (exponent & 1) result *= base;
    }
    return result;
}

// The probability that a row draws each neighbour, inclusion[i] from chance[i].
void include(const std::vector<double>& chance, int64_t support, int64_t fanout, bool replace, double* inclusion) {
    const int64_t degree = static_cast<int64_t>(chance.size());
    if (fanout < 0 || (!replace && support <= fanout)) {
        for (int64_t i = 0; i < degree; ++i) inclusion[i] = chance[i] > 0;
    } else if (replace) {
        for (int64_t i = 0; i < degree; ++i) inclusion[i] = 1 - power(1 - chance[i], fanout);
    } else {
        const double time = arrival_time(chance, static_cast<double>(fanout));
        for (int64_t i = 0; i < degree; ++i) inclusion[i] = one_minus_exp(time * chance[i]);
    }
}

}  // namespace

// The rows are those of the nodes from `first_node` on. rates[l] and fanouts[l] are those of the layers so far, the last of them at hand.
// `sums` are those of the nodes from `low` on; others are left out.
template <class Id>
void push_weighted(Array<const int64_t> indptr, Array<const Id> indices, Array<const uint32_t> table,
                   const std::vector<Array<const double>>& rates, const std::vector<int64_t>& fanouts, bool replace, double scale,
                   Array<uint64_t> sums, int64_t low, int64_t num_nodes, int64_t first_node, int threads) {
    const int64_t* ends = indptr.data();
    const Id* ids = indices.data();
    const AliasEntry* entries = reinterpret_cast<const AliasEntry*>(table.data());
    const int64_t num_rows = indptr.size() - 1, num_edges = indices.size(), layers = static_cast<int64_t>(fanouts.size());
    std::vector<const double*> rate;
    for (const Array<const double>& each : rates) rate.push_back(each.data());
    uint64_t* sum = sums.data();
    const int64_t high = low + sums.shape(0);
    parallel_for(num_rows, PIECE, threads, [&](int64_t begin, int64_t end) {
        check_rows(ends, ids, begin, end, num_nodes, num_edges);
        std::vector<uint64_t> mass;
        std::vector<double> chance, inclusion, missed;
        for (int64_t u = begin; u < end; ++u) {
            const int64_t first = ends[u], degree = ends[u + 1] - first;
            const double now = rate[layers - 1][u];
            if (degree == 0 || now <= 0) continue;
            const int64_t support = read_chances(first_node + u, entries + first, degree, mass, chance);
            inclusion.resize(degree);
            missed.assign(degree, 1.0);
            for (int64_t layer = 0; layer < layers; ++layer) {
                const double q = rate[layer][u];
                if (q <= 0) continue;
                // Layers with the same fanout draw with the same probabilities.
                if (layer == 0 || rate[layer - 1][u] <= 0 || fanouts[layer] != fanouts[layer - 1]) {
                    include(chance, support, fanouts[layer], replace, inclusion.data());
                }
                for (int64_t i = 0; i < degree; ++i) {
                    const double hit = std::min(std::max(0.0, q - (1 - missed[i])) / missed[i] * inclusion[i], SUREST);
                    if (layer + 1 < layers) {
                        missed[i] = std::max(missed[i] * (1 - hit), 1 - SUREST);
                        continue;
                    }
                    const int64_t v = static_cast<int64_t>(ids[first + i]);
                    if (v < low || v >= high) continue;
                    const double slope = std::min(1.0, inclusion[i] * (1 - q) / missed[i] / (1 - hit));
                    __atomic_fetch_add(sum + 2 * (v - low), static_cast<uint64_t>(minus_log(1 - hit) * scale + 0.5), __ATOMIC_RELAXED);
                    __atomic_fetch_add(sum + 2 * (v - low) + 1, static_cast<uint64_t>(slope * scale + 0.5), __ATOMIC_RELAXED);
                }
            }
        }
    });
}

Buffer<double> weighted_inclusions(Array<const uint32_t> row, int64_t fanout, bool replace) {
    std::vector<uint64_t> mass;
    std::vector<double> chance;
    const int64_t degree = row.shape(0);
    const int64_t support = read_chances(0, reinterpret_cast<const AliasEntry*>(row.data()), degree, mass, chance);
    Buffer<double> out(degree);
    include(chance, support, fanout, replace, out.data());
    return out;
}

template decltype(push_weighted<int32_t>) push_weighted<int32_t>;
template decltype(push_weighted<int64_t>) push_weighted<int64_t>;

}  // namespace graphmill
