// Sums of neighbour rows and their gradient; see kernels/aggregate.py.
//
// Both directions are the same loop (sum_rows.h) over different edge lists: an output column is written once, by one
// thread, from rows taken in edge order. So no thread adds to what another one writes and the team does not matter.
#include <optional>
#include <vector>

#include "arrays.h"
#include "parallel.h"
#include "pieces.h"
#include "sum_rows.h"

namespace graphmill {

enum class Reduce { Sum = 0, Mean = 1, Weighted = 2 };

constexpr int64_t HUB_VECTORS = 4;  // of columns that a thread takes of a hub at a time

template <class T>
using Optional = std::optional<Array<T>>;

template <class T>
static const T* pointer(const Optional<T>& array) {
    return array ? array->data() : nullptr;
}

static std::string outside(int64_t num_src) {
    return "the block has a local source id outside 0.." + std::to_string(num_src - 1);
}

template <class T>
static void aggregate(Array<int32_t> start, Array<int32_t> end, Array<int32_t> indices, Optional<int32_t> dst_pos,
                      Optional<float> weight, Optional<float> self_weight, Array<T> h, Array<T> out, int reduce,
                      int threads) {
    const int32_t *begins = start.data(), *ends = end.data(), *source_of = indices.data();
    const int32_t* place = pointer(dst_pos);
    const float *weights = pointer(weight), *own_weights = pointer(self_weight);
    const T* input = h.data();
    T* output = out.mutable_data();
    const int64_t num_dst = start.size(), num_edges = indices.size(), num_src = h.shape(0), width = h.shape(1);
    py::gil_scoped_release unlocked;
    const auto pieces = cut_rows(num_dst, begins, ends, num_edges, width, HUB_VECTORS * LANES<T>,
                                 "the block's start and end");
    const auto source = [=](int64_t e) { return source_of[e]; };
    const auto scale = [=](int64_t e) { return static_cast<Sum<T>>(weights[e]); };
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
            const Piece& piece = pieces[p];
            check_edges(piece, begins, ends, source_of, num_src, outside(num_src).c_str(),
                        "indices are local: rows of src_ids, not global node ids");
            for (int64_t i = piece.from; i < piece.to; ++i) {
                Finish<T> finish;
                const auto sum = [&](const auto& by) {
                    sum_row(Terms<T, decltype(source), std::decay_t<decltype(by)>>{
                                input, width, begins[i], ends[i], num_edges, source, by},
                            finish, piece.column, piece.column_end, output + i * width);
                };
                if (reduce == int(Reduce::Weighted)) {
                    if (own_weights) finish = {0, input + (place ? place[i] : i) * width, own_weights[i]};
                    sum(scale);
                } else {
                    if (reduce == int(Reduce::Mean)) finish.divisor = static_cast<Sum<T>>(ends[i] - begins[i]);
                    sum(Unscaled{});
                }
            }
        }
    });
}

// Where source s is a destination itself: its row among them, else -1.
static std::vector<int32_t> own_rows(int64_t num_src, int64_t num_dst, const int32_t* place) {
    std::vector<int32_t> own(num_src, -1);
    for (int64_t i = 0; i < num_dst; ++i) {
        int32_t& row = own[place ? place[i] : i];
        if (row >= 0) {
            throw InputError("dst_pos names source row " + std::to_string(place[i]) + " twice",
                             "list every destination once");
        }
        row = static_cast<int32_t>(i);
    }
    return own;
}

template <class T>
static void aggregate_backward(Array<int32_t> start, Array<int32_t> end, Optional<int32_t> dst_pos,
                               Optional<float> weight, Optional<float> self_weight, Array<int32_t> t_start,
                               Array<int32_t> t_edge, Array<int32_t> t_dst, Array<T> grad, Array<T> out, int reduce,
                               int threads) {
    const int32_t *begins = start.data(), *ends = end.data(), *place = pointer(dst_pos);
    const int32_t *firsts = t_start.data(), *edge_of = t_edge.data(), *dst_of = t_dst.data();
    const float *weights = pointer(weight), *own_weights = pointer(self_weight);
    const T* input = grad.data();
    T* output = out.mutable_data();
    const int64_t num_dst = start.size(), num_src = out.shape(0), width = grad.shape(1), num_edges = t_dst.size();
    const int64_t num_weights = weight ? weight->size() : 0;
    py::gil_scoped_release unlocked;
    const auto pieces = cut_rows(num_src, firsts, firsts + 1, num_edges, width, HUB_VECTORS * LANES<T>,
                                 "the starts of the transpose");
    std::vector<int32_t> own;
    if (reduce == int(Reduce::Weighted) && own_weights) own = own_rows(num_src, num_dst, place);
    std::vector<Sum<T>> inverse(reduce == int(Reduce::Mean) ? num_dst : 0);
    for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = Sum<T>(1) / static_cast<Sum<T>>(ends[i] - begins[i]);
    const int32_t* own_row = own.empty() ? nullptr : own.data();
    const Sum<T>* inverses = inverse.data();
    const auto source = [=](int64_t e) { return dst_of[e]; };
    const auto by_degree = [=](int64_t e) { return inverses[dst_of[e]]; };
    const auto by_weight = [=](int64_t e) { return static_cast<Sum<T>>(weights[edge_of[e]]); };
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
            const Piece& piece = pieces[p];
            check_edges(piece, firsts, firsts + 1, dst_of, num_dst,
                        "the transpose names a destination that its block does not have", "call transpose() again");
            if (weights) {
                check_edges(piece, firsts, firsts + 1, edge_of, num_weights,
                            "the transpose names an edge that its block does not have", "call transpose() again");
            }
            for (int64_t s = piece.from; s < piece.to; ++s) {
                Finish<T> finish;
                const int64_t own_dst = own_row ? own_row[s] : -1;
                if (own_dst >= 0) finish = {0, input + own_dst * width, own_weights[own_dst]};
                const auto sum = [&](const auto& by) {
                    sum_row(Terms<T, decltype(source), std::decay_t<decltype(by)>>{
                                input, width, firsts[s], firsts[s + 1], num_edges, source, by},
                            finish, piece.column, piece.column_end, output + s * width);
                };
                if (reduce == int(Reduce::Sum)) sum(Unscaled{});
                else if (reduce == int(Reduce::Mean)) sum(by_degree);
                else sum(by_weight);
            }
        }
    });
}

template <class T>
static void bind(py::module_& m) {
    using py::arg;
    m.def("aggregate", &aggregate<T>, arg("start").noconvert(), arg("end").noconvert(), arg("indices").noconvert(),
          arg("dst_pos").noconvert(), arg("weight").noconvert(), arg("self_weight").noconvert(), arg("h").noconvert(),
          arg("out").noconvert(), arg("reduce"), arg("threads"));
    m.def("aggregate_backward", &aggregate_backward<T>, arg("start").noconvert(), arg("end").noconvert(),
          arg("dst_pos").noconvert(), arg("weight").noconvert(), arg("self_weight").noconvert(),
          arg("t_start").noconvert(), arg("t_edge").noconvert(), arg("t_dst").noconvert(), arg("grad").noconvert(),
          arg("out").noconvert(), arg("reduce"), arg("threads"));
}

void bind_aggregate(py::module_& m) {
    bind<float>(m);
    bind<double>(m);
    bind<Half>(m);
    bind<BFloat>(m);
}

}  // namespace graphmill
