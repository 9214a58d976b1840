// Builds alias tables of integers; see kernels/sampling/alias.py for the rule.
#include "sampling/alias.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "sampling/sampling.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 1 << 12;  // rows that a thread takes at a time

enum class Faults { Negative = 0, NotFinite = 1, Empty = 2 };

// What is wrong with a row of weights, or -1.
template <class Weight>
int fault_of(int64_t degree, bool refuse_empty, Weight weight) {
    bool any = degree == 0;
    for (int64_t i = 0; i < degree; ++i) {
        const double w = weight(i);
        if (!std::isfinite(w)) return int(Faults::NotFinite);
        if (w < 0) return int(Faults::Negative);
        any |= w > 0;
    }
    return any || !refuse_empty ? -1 : int(Faults::Empty);
}

// Makes the tables of rows, with scratch that is used again from row to row.
class Maker {
  public:
    // Returns the number of neighbours with weight; `uniform` says what a row without any weight becomes.
    template <class Weight>
    int32_t make(int64_t degree, bool uniform, Weight weight, AliasEntry* row) {
        double largest = 0;
        for (int64_t i = 0; i < degree; ++i) largest = std::max(largest, static_cast<double>(weight(i)));
        if (largest == 0) {
            for (int64_t i = 0; i < degree; ++i) row[i] = {uniform ? FULL : 0, static_cast<uint32_t>(i)};
            return uniform ? static_cast<int32_t>(degree) : 0;
        }
        const int32_t support = quantise(degree, largest, weight);
        balance(degree, row);
        return support;
    }

  private:
    static constexpr uint32_t FULL = std::numeric_limits<uint32_t>::max();

    // mass_ = the weights as integers of the sum degree * ALIAS_WHOLE; the first of the largest gets what rounding leaves.
    template <class Weight>
    int32_t quantise(int64_t degree, double largest, Weight weight) {
        if (mass_.size() < static_cast<size_t>(degree)) mass_.resize(degree);
        double total = 0;
        int64_t top = 0;
        for (int64_t i = 0; i < degree; ++i) {
            const double w = weight(i);
            total += w / largest;
            if (w > weight(top)) top = i;
        }
        const double wanted = static_cast<double>(degree) * static_cast<double>(ALIAS_WHOLE);
        uint64_t sum = 0;
        int32_t support = 0;
        for (int64_t i = 0; i < degree; ++i) {
            const double w = weight(i);
            mass_[i] = static_cast<uint64_t>(w / largest / total * wanted);
            if (w > 0) {
                mass_[i] = std::max<uint64_t>(mass_[i], 1);
                ++support;
            }
            sum += mass_[i];
        }
        mass_[top] += static_cast<uint64_t>(degree) * ALIAS_WHOLE - sum;  // may wrap: then it is less
        return support;
    }

    // Vose's method on integers, so that nothing is left over at the end.
    void balance(int64_t degree, AliasEntry* row) {
        small_.clear();
        large_.clear();
        for (int64_t i = 0; i < degree; ++i) {
            row[i] = {FULL, static_cast<uint32_t>(i)};
            if (mass_[i] < ALIAS_WHOLE) small_.push_back(static_cast<uint32_t>(i));
            if (mass_[i] > ALIAS_WHOLE) large_.push_back(static_cast<uint32_t>(i));
        }
        while (!small_.empty()) {
            const uint32_t poor = small_.back(), rich = large_.back();
            small_.pop_back();
            row[poor] = {static_cast<uint32_t>(mass_[poor]), rich};
            mass_[rich] -= ALIAS_WHOLE - mass_[poor];
            if (mass_[rich] > ALIAS_WHOLE) continue;
            large_.pop_back();
            if (mass_[rich] < ALIAS_WHOLE) small_.push_back(rich);
        }
    }

    std::vector<uint64_t> mass_;
    std::vector<uint32_t> small_, large_;
};

// The rows of a graph with the weights of their edges (f32[E] or f64[E]) or of their sources (f64[N]).
template <class Id>
class WeightedRows {
  public:
    WeightedRows(Array<const int64_t> indptr, Array<const Id> indices, const Table& weights, bool of_nodes)
        : indptr_(indptr.data()), indices_(indices.data()) {
        if (of_nodes) nodes_ = reinterpret_cast<const double*>(weights.data);
        else if (weights.type.bytes == 4) narrow_ = reinterpret_cast<const float*>(weights.data);
        else edges_ = reinterpret_cast<const double*>(weights.data);
    }

    // Calls body(node, first edge, degree, weight of a position) for rows begin to end - 1.
    template <class Body>
    void each(int64_t begin, int64_t end, Body body) const {
        const Id* indices = indices_;
        const double *edges = edges_, *nodes = nodes_;
        const float* narrow = narrow_;
        for (int64_t v = begin; v < end; ++v) {
            const int64_t first = indptr_[v], degree = indptr_[v + 1] - first;
            if (nodes) body(v, first, degree, [=](int64_t i) { return nodes[indices[first + i]]; });
            else if (narrow) body(v, first, degree, [=](int64_t i) { return static_cast<double>(narrow[first + i]); });
            else body(v, first, degree, [=](int64_t i) { return edges[first + i]; });
        }
    }

  private:
    const int64_t* indptr_;
    const Id* indices_;
    const double *edges_ = nullptr, *nodes_ = nullptr;
    const float* narrow_ = nullptr;
};

}  // namespace

template <class Id>
std::optional<std::pair<int64_t, int>> alias_fault(Array<const int64_t> indptr, Array<const Id> indices, Table weights, bool of_nodes,
                                                   bool refuse_empty, int threads) {
    const WeightedRows<Id> rows(indptr, indices, weights, of_nodes);
    const int64_t num_nodes = indptr.size() - 1;
    std::atomic<int64_t> first{num_nodes};
    parallel_for(num_nodes, PIECE, threads, [&](int64_t begin, int64_t end) {
        if (begin >= first) return;
        int64_t found = num_nodes;
        rows.each(begin, end, [&](int64_t v, int64_t, int64_t degree, auto weight) {
            if (found == num_nodes && fault_of(degree, refuse_empty, weight) >= 0) found = v;
        });
        for (int64_t seen = first; found < seen && !first.compare_exchange_weak(seen, found);) {}
    });
    if (first == num_nodes) return std::nullopt;
    int fault = -1;
    rows.each(first, first + 1, [&](int64_t, int64_t, int64_t degree, auto weight) { fault = fault_of(degree, refuse_empty, weight); });
    return std::make_pair(int64_t{first}, fault);
}

template <class Id>
void alias_tables(Array<const int64_t> indptr, Array<const Id> indices, Table weights, bool of_nodes, bool uniform, int64_t begin,
                  int64_t end, Array<uint32_t> table, Array<int32_t> support, int threads) {
    const WeightedRows<Id> rows(indptr, indices, weights, of_nodes);
    AliasEntry* out = reinterpret_cast<AliasEntry*>(table.data());
    int32_t* counts = support.data();
    const int64_t base = indptr[begin];
    parallel_for(end - begin, PIECE, threads, [&](int64_t low, int64_t high) {
        Maker maker;
        rows.each(begin + low, begin + high, [&](int64_t v, int64_t first, int64_t degree, auto weight) {
            counts[v - begin] = maker.make(degree, uniform, weight, out + (first - base));
        });
    });
}

template decltype(alias_fault<int32_t>) alias_fault<int32_t>;
template decltype(alias_fault<int64_t>) alias_fault<int64_t>;
template decltype(alias_tables<int32_t>) alias_tables<int32_t>;
template decltype(alias_tables<int64_t>) alias_tables<int64_t>;

}  // namespace graphmill
