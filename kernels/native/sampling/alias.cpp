// Builds alias tables of integers; see kernels/sampling/alias.py for the rule.
#include "sampling/alias.h"

#include <atomic>
#include <cmath>
#include <limits>

#include "base/arrays.h"
#include "base/parallel.h"

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

// Calls body(node, first edge, degree, weight of a position) for rows begin to end - 1.
template <class Id, class Body>
void each_row(const int64_t* indptr, const Id* indices, const double* edges, const float* narrow, const double* nodes,
              int64_t begin, int64_t end, Body body) {
    for (int64_t v = begin; v < end; ++v) {
        const int64_t first = indptr[v], degree = indptr[v + 1] - first;
        if (nodes) body(v, first, degree, [=](int64_t i) { return nodes[indices[first + i]]; });
        else if (narrow) body(v, first, degree, [=](int64_t i) { return static_cast<double>(narrow[first + i]); });
        else body(v, first, degree, [=](int64_t i) { return edges[first + i]; });
    }
}

// Weights of edges (f32[E] or f64[E]) or of sources (f64[N]).
template <class Id>
struct Weights {
    const double *edges = nullptr, *nodes = nullptr;
    const float* narrow = nullptr;

    Weights(const py::array& given, bool of_nodes) {
        if (of_nodes) nodes = static_cast<const double*>(given.data());
        else if (given.itemsize() == 4) narrow = static_cast<const float*>(given.data());
        else edges = static_cast<const double*>(given.data());
    }
};

// Returns (node, fault) of the first row that is refused, or None.
template <class Id>
py::object find_fault(Array<int64_t> indptr, Array<Id> indices, py::array weights, bool of_nodes, bool refuse_empty,
                      int threads) {
    const Weights<Id> given(weights, of_nodes);
    const int64_t* row = indptr.data();
    const Id* ids = indices.data();
    const int64_t num_nodes = indptr.size() - 1;
    std::atomic<int64_t> first{num_nodes};
    {
        py::gil_scoped_release unlocked;
        parallel_for(num_nodes, PIECE, threads, [&](int64_t begin, int64_t end) {
            if (begin >= first) return;
            int64_t found = num_nodes;
            each_row(row, ids, given.edges, given.narrow, given.nodes, begin, end, [&](int64_t v, int64_t, int64_t degree, auto weight) {
                if (found == num_nodes && fault_of(degree, refuse_empty, weight) >= 0) found = v;
            });
            for (int64_t seen = first; found < seen && !first.compare_exchange_weak(seen, found);) {}
        });
    }
    if (first == num_nodes) return py::none();
    int fault = -1;
    each_row(row, ids, given.edges, given.narrow, given.nodes, first, first + 1,
             [&](int64_t, int64_t, int64_t degree, auto weight) { fault = fault_of(degree, refuse_empty, weight); });
    return py::make_tuple(int64_t{first}, fault);
}

// Writes table u32[E, 2] and support i32[N]. The weights have been tested.
template <class Id>
void alias_tables(Array<int64_t> indptr, Array<Id> indices, py::array weights, bool of_nodes, bool uniform, int64_t begin,
                  int64_t end, Array<uint32_t> table, Array<int32_t> support, int threads) {
    const Weights<Id> given(weights, of_nodes);
    const int64_t* row = indptr.data();
    const Id* ids = indices.data();
    AliasEntry* out = reinterpret_cast<AliasEntry*>(table.mutable_data());
    int32_t* counts = support.mutable_data();
    const int64_t base = row[begin];
    py::gil_scoped_release unlocked;
    parallel_for(end - begin, PIECE, threads, [&](int64_t low, int64_t high) {
        Maker maker;
        each_row(row, ids, given.edges, given.narrow, given.nodes, begin + low, begin + high,
                 [&](int64_t v, int64_t first, int64_t degree, auto weight) {
                     counts[v - begin] = maker.make(degree, uniform, weight, out + (first - base));
                 });
    });
}

template <class Id>
void bind(py::module_& m) {
    using py::arg;
    m.def("alias_fault", &find_fault<Id>, arg("indptr").noconvert(), arg("indices").noconvert(), arg("weights"), arg("of_nodes"),
          arg("refuse_empty"), arg("threads"));
    m.def("alias_tables", &alias_tables<Id>, arg("indptr").noconvert(), arg("indices").noconvert(), arg("weights"),
          arg("of_nodes"), arg("uniform"), arg("begin"), arg("end"), arg("table").noconvert(), arg("support").noconvert(),
          arg("threads"));
}

}  // namespace

void bind_alias(py::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
}

}  // namespace graphmill
