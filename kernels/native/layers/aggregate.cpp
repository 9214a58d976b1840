// Sums of neighbour rows and their gradient; see kernels/layers/aggregate.py.
//
// Both directions are the same loop (sum_rows.h) over different edge lists: an output column is written once, by one
// thread, from rows taken in edge order. So no thread adds to what another one writes and the team does not matter.
#include <vector>

#include "base/arrays.h"
#include "base/parallel.h"
#include "layers/block_view.h"
#include "layers/sum_rows.h"
#include "layers/work_split.h"

namespace graphmill {
namespace {

enum class Reduce { Sum = 0, Mean = 1, Weighted = 2 };

template <class T>
const T* pointer(const Optional<T>& array) {
    return array ? array->data() : nullptr;
}

template <class T>
void aggregate(Array<int32_t> start, Array<int32_t> end, Array<int32_t> indices, Optional<int32_t> dst_pos,
               Optional<float> weight, Optional<float> self_weight, Array<T> h, Array<T> out, int reduce,
               int threads) {
    const BlockView block = view_of(start, end, indices, dst_pos, h.shape(0));
    const float *weights = pointer(weight), *own_weights = pointer(self_weight);
    const T* input = h.data();
    T* output = out.mutable_data();
    const int64_t width = h.shape(1);
    py::gil_scoped_release unlocked;
    const auto pieces = cut_block(block, width, HUB_VECTORS * LANES<T>, threads);
    const auto source = [=](int64_t e) { return block.sources[e]; };
    const auto sum_all = [&](auto scale, auto finish) {
        const Sums<T, decltype(source), decltype(scale), decltype(finish)> sums{
            input, output, block.num_dst, width, block.num_edges, block.begins, block.ends, source, scale, finish};
        parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
            for (int64_t p = first; p < last; ++p) {
                check_sources(block, pieces[p]);
                sum_rows(sums, pieces[p]);
            }
        });
    };
    if (reduce == int(Reduce::Weighted)) {
        sum_all([=](int64_t e) { return static_cast<Sum<T>>(weights[e]); }, [=](int64_t i) {
            return own_weights ? Finish<T>{0, input + block.own(i) * width, own_weights[i]} : Finish<T>{};
        });
        return;
    }
    const bool mean = reduce == int(Reduce::Mean);
    sum_all(Unscaled{}, [=](int64_t i) {
        return Finish<T>{mean ? static_cast<Sum<T>>(block.ends[i] - block.begins[i]) : 0, nullptr, 0};
    });
}

template <class T>
void aggregate_backward(Array<int32_t> start, Array<int32_t> end, Optional<int32_t> dst_pos,
                        Optional<float> weight, Optional<float> self_weight, Array<int32_t> t_start,
                        Array<int32_t> t_edge, Array<int32_t> t_dst, Optional<float> t_weight, Array<T> grad,
                        Array<T> out, int reduce, int threads) {
    const int32_t *begins = start.data(), *ends = end.data(), *place = pointer(dst_pos);
    const Transposed transposed{t_start.data(), t_edge.data(), t_dst.data(), out.shape(0), start.size(), t_dst.size()};
    const float *weights = pointer(weight), *own_weights = pointer(self_weight), *ordered = pointer(t_weight);
    const T* input = grad.data();
    T* output = out.mutable_data();
    const int64_t width = grad.shape(1), num_weights = weight && !ordered ? weight->size() : 0;
    py::gil_scoped_release unlocked;
    const auto pieces = cut_transposed(transposed, width, HUB_VECTORS * LANES<T>, threads);
    const auto source = [=](int64_t t) { return transposed.dsts[t]; };
    const auto sum_all = [&](auto scale, auto finish) {
        const Sums<T, decltype(source), decltype(scale), decltype(finish)> sums{
            input,  output, transposed.num_src, width, transposed.num_transposed, transposed.starts, transposed.starts + 1,
            source, scale,  finish};
        parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
            for (int64_t p = first; p < last; ++p) {
                check_transposed(transposed, pieces[p], num_weights);
                sum_rows(sums, pieces[p]);
            }
        });
    };
    const auto as_it_is = [](int64_t) { return Finish<T>{}; };
    if (reduce == int(Reduce::Sum)) {
        sum_all(Unscaled{}, as_it_is);
    } else if (reduce == int(Reduce::Mean)) {
        std::vector<Sum<T>> inverse(transposed.num_dst);
        for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = Sum<T>(1) / static_cast<Sum<T>>(ends[i] - begins[i]);
        sum_all([=, inverses = inverse.data()](int64_t t) { return inverses[transposed.dsts[t]]; }, as_it_is);
    } else {
        std::vector<int32_t> own;
        if (own_weights) own = own_rows(transposed.num_src, transposed.num_dst, place);
        const int32_t* rows = own.empty() ? nullptr : own.data();
        const auto own_term = [=](int64_t s) {
            return rows && rows[s] >= 0 ? Finish<T>{0, input + rows[s] * width, own_weights[rows[s]]} : Finish<T>{};
        };
        if (ordered) sum_all([=](int64_t t) { return static_cast<Sum<T>>(ordered[t]); }, own_term);
        else sum_all([=](int64_t t) { return static_cast<Sum<T>>(weights[transposed.edges[t]]); }, own_term);
    }
}

template <class T>
void bind(py::module_& m) {
    using py::arg;
    m.def("aggregate", &aggregate<T>, arg("start").noconvert(), arg("end").noconvert(), arg("indices").noconvert(),
          arg("dst_pos").noconvert(), arg("weight").noconvert(), arg("self_weight").noconvert(), arg("h").noconvert(),
          arg("out").noconvert(), arg("reduce"), arg("threads"));
    m.def("aggregate_backward", &aggregate_backward<T>, arg("start").noconvert(), arg("end").noconvert(),
          arg("dst_pos").noconvert(), arg("weight").noconvert(), arg("self_weight").noconvert(),
          arg("t_start").noconvert(), arg("t_edge").noconvert(), arg("t_dst").noconvert(), arg("t_weight").noconvert(),
          arg("grad").noconvert(), arg("out").noconvert(), arg("reduce"), arg("threads"));
}

}  // namespace

void bind_aggregate(py::module_& m) {
    bind<float>(m);
    bind<double>(m);
    bind<Half>(m);
    bind<BFloat>(m);
}

}  // namespace graphmill
