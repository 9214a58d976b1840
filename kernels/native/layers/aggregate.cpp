// Sums of neighbour rows and their gradient; see kernels/layers/aggregate.py.
//
// Both directions are the same loop (sum_rows.h) over different edge lists: an output column is written once, by one
// thread, from rows taken in edge order. So no thread adds to what another one writes and the team does not matter.
#include "layers/layers.h"

#include <vector>

#include "base/parallel.h"
#include "layers/block_view.h"
#include "layers/sum_rows.h"
#include "layers/work_split.h"

namespace graphmill {
namespace {

enum class Reduce { Sum = 0, Mean = 1, Weighted = 2 };

// Sums the pieces' rows; check(piece) is called before the rows of its edges are read.
template <class T, class Check>
void sum_pieces(const Sums<T>& sums, const std::vector<Piece>& pieces, int threads, const Check& check) {
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
            check(pieces[p]);
            sum_rows(sums, pieces[p]);
        }
    });
}

}  // namespace

template <class T>
void aggregate(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Optional<const int32_t> dst_pos,
               Optional<const float> weight, Optional<const float> self_weight, Array<const T> h, Array<T> out, int reduce, int threads) {
    const BlockView block = view_of(start, end, indices, dst_pos, h.shape(0));
    const int64_t width = h.shape(1);
    Sums<T> sums{h.data(), out.data(), block.num_dst, width, block.num_edges, block.begins, block.ends, block.sources};
    sums.mean = reduce == int(Reduce::Mean);
    if (reduce == int(Reduce::Weighted)) {
        sums.weights = pointer(weight);
        sums.own_weights = pointer(self_weight);
        sums.own_rows = block.place;
    }
    const auto pieces = cut_block(block, width, HUB_VECTORS * LANES<T>, threads);
    sum_pieces(sums, pieces, threads, [&](const Piece& piece) { check_sources(block, piece); });
}

template <class T>
void aggregate_backward(Array<const int32_t> start, Array<const int32_t> end, Optional<const int32_t> dst_pos,
                        Optional<const float> weight, Optional<const float> self_weight, Array<const int32_t> t_start,
                        Array<const int32_t> t_edge, Array<const int32_t> t_dst, Optional<const float> t_weight, Array<const T> grad,
                        Array<T> out, int reduce, int threads) {
    const Transposed transposed{t_start.data(), t_edge.data(), t_dst.data(), out.shape(0), start.size(), t_dst.size()};
    const int64_t width = grad.shape(1), num_weights = weight && !t_weight ? weight->size() : 0;
    const auto pieces = cut_transposed(transposed, width, HUB_VECTORS * LANES<T>, threads);
    Sums<T> sums{grad.data(),       out.data(),            transposed.num_src, width, transposed.num_transposed,
                 transposed.starts, transposed.starts + 1, transposed.dsts};
    std::vector<Sum<T>> inverse;
    std::vector<int32_t> own;
    if (reduce == int(Reduce::Mean)) {
        inverse.resize(transposed.num_dst);
        for (size_t i = 0; i < inverse.size(); ++i) inverse[i] = Sum<T>(1) / static_cast<Sum<T>>(end[i] - start[i]);
        sums.inverses = inverse.data();
        sums.at = transposed.dsts;
    } else if (reduce == int(Reduce::Weighted)) {
        sums.weights = pointer(t_weight ? t_weight : weight);
        if (!t_weight) sums.at = transposed.edges;
        if (self_weight) {
            own = own_rows(transposed.num_src, transposed.num_dst, pointer(dst_pos));
            sums.own_weights = pointer(self_weight);
            sums.own_rows = own.data();
            sums.own_of_input = true;
        }
    }
    sum_pieces(sums, pieces, threads, [&](const Piece& piece) { check_transposed(transposed, piece, num_weights); });
}

template decltype(aggregate<float>) aggregate<float>;
template decltype(aggregate<double>) aggregate<double>;
template decltype(aggregate<Half>) aggregate<Half>;
template decltype(aggregate<BFloat>) aggregate<BFloat>;

template decltype(aggregate_backward<float>) aggregate_backward<float>;
template decltype(aggregate_backward<double>) aggregate_backward<double>;
template decltype(aggregate_backward<Half>) aggregate_backward<Half>;
template decltype(aggregate_backward<BFloat>) aggregate_backward<BFloat>;

}  // namespace graphmill
