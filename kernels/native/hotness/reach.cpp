// How likely a batch is to reach a node, one layer further; see kernels/hotness/reach.py for the rule.
#include "hotness/hotness.h"

#include <algorithm>
#include <cmath>

#include "base/exact_math.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 1 << 14;      // nodes that a thread takes at a time
constexpr double SUREST = 1 - 0x1p-20;  // keeps the logarithm finite

// The probability that a row of so many neighbours draws a given one.
double pick_chance(int64_t degree, int64_t fanout, bool replace) {
    if (!replace || fanout < 0 || degree == 0) return fanout < 0 || degree <= fanout ? 1.0 : static_cast<double>(fanout) / degree;
    double missed = 1, base = 1 - 1.0 / degree;
    for (int64_t draws = fanout; draws; draws >>= 1, base *= base) {
        if (draws & 1) missed *= base;
    }
    return 1 - missed;
}

}  // namespace

// What each node u adds to the sums of its in-neighbours: the exponent of missing them in this layer too, and its derivative by u's own
// exponent. `before` and `after`: that u has drawn a given neighbour in the layers above, and in this one as well.
void pick_exponents(Array<const int64_t> indptr, Array<const double> rates, int64_t fanout, bool replace, double scale,
                    Array<const double> before, Array<double> after, Array<uint64_t> values, int threads) {
    const int64_t* row = indptr.data();
    const double *rate = rates.data(), *drawn = before.data();
    double* drawn_now = after.data();
    uint64_t* value = values.data();
    const int64_t num_nodes = rates.size();
    parallel_for(num_nodes, PIECE, threads, [=](int64_t begin, int64_t end) {
        for (int64_t u = begin; u < end; ++u) {
            const int64_t degree = row[u + 1] - row[u];
            const double picked = pick_chance(degree, fanout, replace);
            const double missed = 1 - drawn[u];  // at least 2^-20
            const double hit = std::min(std::max(0.0, rate[u] - drawn[u]) / missed * picked, SUREST);
            drawn_now[u] = std::min(1 - missed * (1 - hit), SUREST);
            value[2 * u] = static_cast<uint64_t>(minus_log(1 - hit) * scale + 0.5);
            value[2 * u + 1] = static_cast<uint64_t>(std::min(1.0, picked * (1 - rate[u]) / missed / (1 - hit)) * scale + 0.5);
        }
    });
}

// The probability that each node v is drawn, out of the sums that its out-neighbours have added to. What v gave to its neighbours in the
// layers above (`before`) comes back as an echo and is subtracted.
void reach(Array<const uint64_t> sums, Array<const double> before, double reciprocity, double scale, Array<double> out, int threads) {
    const uint64_t* sum = sums.data();
    const double* drawn = before.data();
    double* reached = out.data();
    const int64_t num_nodes = out.size();
    parallel_for(num_nodes, PIECE, threads, [=](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) {
            const double echo = reciprocity * minus_log(1 - drawn[v]) * (sum[2 * v + 1] / scale);
            reached[v] = one_minus_exp(std::max(0.0, sum[2 * v] / scale - echo));
        }
    });
}

}  // namespace graphmill
