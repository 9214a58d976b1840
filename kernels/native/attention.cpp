// Softmax attention over a block's edges and its gradient; see kernels/attention.py.
//
// Forward and the first half of backward go by destinations, the second half by sources over the transpose. So every
// output row is written once, by one thread, from rows taken in edge order.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "arrays.h"
#include "parallel.h"
#include "rng.h"
#include "transpose.h"

namespace graphmill {

constexpr int64_t PIECE = 32;
constexpr uint64_t OWN_TERM = ~0ull;  // stands where an occurrence would: the own term is no edge

template <class T>
using Optional = std::optional<Array<T>>;

// A block as the loops see it. The weights of destination i's own term are row num_edges + i of all edge arrays.
struct Rows {
    const int32_t *begins, *ends, *sources, *place;
    int64_t num_dst, num_src, num_edges;
    int64_t own(int64_t i) const { return place ? place[i] : i; }
};

static Rows rows_of(const Array<int32_t>& start, const Array<int32_t>& end, const Array<int32_t>& indices,
                    const Optional<int32_t>& dst_pos, int64_t num_src) {
    return {start.data(), end.data(), indices.data(), dst_pos ? dst_pos->data() : nullptr,
            start.size(), num_src,    indices.size()};
}

// Calls body(edge row, source row) for the edges of destination i, in order, and then for its own term.
template <class Body>
static void each_edge(const Rows& block, int64_t i, const Body& body) {
    for (int64_t e = block.begins[i]; e < block.ends[i]; ++e) body(e, int64_t{block.sources[e]});
    body(block.num_edges + i, block.own(i));
}

// How often the same source came before in the same row.
static std::vector<int32_t> occurrences(const Rows& block) {
    std::vector<int32_t> result(block.num_edges), count(block.num_src);
    std::vector<int64_t> last(block.num_src, -1);
    for (int64_t i = 0; i < block.num_dst; ++i) {
        for (int64_t e = block.begins[i]; e < block.ends[i]; ++e) {
            const int32_t s = block.sources[e];
            if (last[s] != i) count[s] = 0;
            last[s] = i;
            result[e] = count[s]++;
        }
    }
    return result;
}

template <class Id>
static void edge_mask(Array<int32_t> start, Array<int32_t> end, Array<int32_t> indices, Optional<int32_t> dst_pos,
                      Array<Id> src_ids, uint64_t key, uint32_t threshold, Array<uint8_t> kept, int threads) {
    const Rows block = rows_of(start, end, indices, dst_pos, src_ids.size());
    const Id* names = src_ids.data();
    uint8_t* out = kept.mutable_data();
    const int64_t heads = kept.shape(1);
    py::gil_scoped_release unlocked;
    check_block(block.num_dst, block.num_src, block.begins, block.ends, block.sources, block.num_edges);
    const std::vector<int32_t> order = occurrences(block);
    parallel_for(block.num_dst, PIECE, threads, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
            const uint64_t row_key = absorb(key, static_cast<uint64_t>(names[block.own(i)]));
            each_edge(block, i, [&](int64_t e, int64_t s) {
                const uint64_t occurrence = e < block.num_edges ? static_cast<uint64_t>(order[e]) : OWN_TERM;
                const uint64_t edge_key = absorb(absorb(row_key, static_cast<uint64_t>(names[s])), occurrence);
                for (int64_t h = 0; h < heads; ++h) {
                    const uint16_t lane = static_cast<uint16_t>(draw(edge_key, h >> 2) >> (16 * (h & 3)));
                    out[e * heads + h] = lane >= threshold;
                }
            });
        }
    });
}

template <class T>
static T leaky(T x, T slope) { return x > 0 ? x : x * slope; }

template <class T>
static void attend(Array<int32_t> start, Array<int32_t> end, Array<int32_t> indices, Optional<int32_t> dst_pos,
                   Array<T> z, Array<T> left, Array<T> right, T slope, Optional<uint8_t> kept, T scale,
                   Array<T> alpha, Array<T> out, int threads) {
    const Rows block = rows_of(start, end, indices, dst_pos, z.shape(0));
    const T *rows = z.data(), *lefts = left.data(), *rights = right.data();
    const uint8_t* mask = kept ? kept->data() : nullptr;
    T *weights = alpha.mutable_data(), *output = out.mutable_data();
    const int64_t heads = left.shape(1), width = z.shape(1), depth = heads ? width / heads : 0;
    py::gil_scoped_release unlocked;
    check_block(block.num_dst, block.num_src, block.begins, block.ends, block.sources, block.num_edges);
    parallel_for(block.num_dst, PIECE, threads, [&](int64_t from, int64_t to) {
        std::vector<T> most(heads), sum(heads);
        for (int64_t i = from; i < to; ++i) {
            for (int64_t h = 0; h < heads; ++h) most[h] = -std::numeric_limits<T>::infinity();
            each_edge(block, i, [&](int64_t e, int64_t s) {
                for (int64_t h = 0; h < heads; ++h) {
                    const T score = leaky(lefts[s * heads + h] + rights[i * heads + h], slope);
                    weights[e * heads + h] = score;
                    most[h] = std::max(most[h], score);
                }
            });
            for (int64_t h = 0; h < heads; ++h) sum[h] = 0;
            each_edge(block, i, [&](int64_t e, int64_t) {
                for (int64_t h = 0; h < heads; ++h) {
                    sum[h] += weights[e * heads + h] = std::exp(weights[e * heads + h] - most[h]);
                }
            });
            T* row = output + i * width;
            for (int64_t c = 0; c < width; ++c) row[c] = 0;
            each_edge(block, i, [&](int64_t e, int64_t s) {
                const T* from_row = rows + s * width;
                for (int64_t h = 0; h < heads; ++h) {
                    const T weight = weights[e * heads + h] /= sum[h];
                    if (mask && !mask[e * heads + h]) continue;
                    const T factor = weight * scale;
                    for (int64_t c = h * depth; c < (h + 1) * depth; ++c) row[c] += factor * from_row[c];
                }
            });
        }
    });
}

// The gradients of all scores and of `right`. grad_score[edge row, head] is what the sources gather afterwards.
template <class T>
static void attend_backward_rows(Array<int32_t> start, Array<int32_t> end, Array<int32_t> indices,
                                 Optional<int32_t> dst_pos, Array<T> z, Array<T> left, Array<T> right, T slope,
                                 Optional<uint8_t> kept, T scale, Array<T> alpha, Array<T> grad, Array<T> grad_score,
                                 Array<T> grad_right, int threads) {
    const Rows block = rows_of(start, end, indices, dst_pos, z.shape(0));
    const T *rows = z.data(), *lefts = left.data(), *rights = right.data(), *weights = alpha.data();
    const T* grads = grad.data();
    const uint8_t* mask = kept ? kept->data() : nullptr;
    T *scores = grad_score.mutable_data(), *right_out = grad_right.mutable_data();
    const int64_t heads = left.shape(1), width = z.shape(1), depth = heads ? width / heads : 0;
    py::gil_scoped_release unlocked;
    check_block(block.num_dst, block.num_src, block.begins, block.ends, block.sources, block.num_edges);
    parallel_for(block.num_dst, PIECE, threads, [&](int64_t from, int64_t to) {
        std::vector<T> mean(heads);
        for (int64_t i = from; i < to; ++i) {
            const T* g = grads + i * width;
            for (int64_t h = 0; h < heads; ++h) mean[h] = right_out[i * heads + h] = 0;
            each_edge(block, i, [&](int64_t e, int64_t s) {
                for (int64_t h = 0; h < heads; ++h) {
                    T dot = 0;
                    if (!mask || mask[e * heads + h]) {
                        for (int64_t c = h * depth; c < (h + 1) * depth; ++c) dot += g[c] * rows[s * width + c];
                        dot *= scale;
                    }
                    scores[e * heads + h] = dot;
                    mean[h] += weights[e * heads + h] * dot;
                }
            });
            each_edge(block, i, [&](int64_t e, int64_t s) {
                for (int64_t h = 0; h < heads; ++h) {
                    const int64_t at = e * heads + h;
                    const T raw = lefts[s * heads + h] + rights[i * heads + h];
                    scores[at] = weights[at] * (scores[at] - mean[h]) * (raw > 0 ? T(1) : slope);
                    right_out[i * heads + h] += scores[at];
                }
            });
        }
    });
}

template <class T>
static void attend_backward_sources(Optional<int32_t> dst_pos, Array<int32_t> t_start, Array<int32_t> t_edge,
                                    Array<int32_t> t_dst, Optional<uint8_t> kept, T scale, Array<T> alpha,
                                    Array<T> grad, Array<T> grad_score, Array<T> grad_z, Array<T> grad_left, int64_t num_edges,
                                    int threads) {
    const int32_t *firsts = t_start.data(), *edges = t_edge.data(), *dsts = t_dst.data();
    const int32_t* place = dst_pos ? dst_pos->data() : nullptr;
    const T *weights = alpha.data(), *grads = grad.data(), *scores = grad_score.data();
    const uint8_t* mask = kept ? kept->data() : nullptr;
    T *output = grad_z.mutable_data(), *left_out = grad_left.mutable_data();
    const int64_t num_dst = grad.shape(0), num_src = grad_z.shape(0), heads = grad_left.shape(1);
    const int64_t width = grad_z.shape(1), depth = heads ? width / heads : 0;
    py::gil_scoped_release unlocked;
    check_block(num_src, num_dst, firsts, firsts + 1, dsts, t_dst.size());
    for (int64_t t = 0; t < t_edge.size(); ++t) {
        if (edges[t] < 0 || edges[t] >= num_edges)
            throw InputError("the transpose names an edge that its block does not have", "call transpose() again");
    }
    std::vector<int32_t> own(num_src, -1);
    for (int64_t i = 0; i < num_dst; ++i) {
        int32_t& row = own[place ? place[i] : i];
        if (row >= 0) throw InputError("dst_pos names a source row twice", "list every destination once");
        row = static_cast<int32_t>(i);
    }
    parallel_for(num_src, PIECE, threads, [&](int64_t from, int64_t to) {
        for (int64_t s = from; s < to; ++s) {
            T* row = output + s * width;
            for (int64_t c = 0; c < width; ++c) row[c] = 0;
            for (int64_t h = 0; h < heads; ++h) left_out[s * heads + h] = 0;
            const auto pull = [&](int64_t e, int64_t i) {
                for (int64_t h = 0; h < heads; ++h) {
                    left_out[s * heads + h] += scores[e * heads + h];
                    if (mask && !mask[e * heads + h]) continue;
                    const T factor = weights[e * heads + h] * scale;
                    for (int64_t c = h * depth; c < (h + 1) * depth; ++c) row[c] += factor * grads[i * width + c];
                }
            };
            for (int64_t t = firsts[s]; t < firsts[s + 1]; ++t) pull(edges[t], dsts[t]);
            if (own[s] >= 0) pull(num_edges + own[s], own[s]);
        }
    });
}

template <class T>
static void bind(py::module_& m) {
    using py::arg;
    m.def("attend", &attend<T>, arg("start").noconvert(), arg("end").noconvert(), arg("indices").noconvert(),
          arg("dst_pos").noconvert(), arg("z").noconvert(), arg("left").noconvert(), arg("right").noconvert(),
          arg("slope"), arg("kept").noconvert(), arg("scale"), arg("alpha").noconvert(), arg("out").noconvert(),
          arg("threads"));
    m.def("attend_backward_rows", &attend_backward_rows<T>, arg("start").noconvert(), arg("end").noconvert(),
          arg("indices").noconvert(), arg("dst_pos").noconvert(), arg("z").noconvert(), arg("left").noconvert(),
          arg("right").noconvert(), arg("slope"), arg("kept").noconvert(), arg("scale"), arg("alpha").noconvert(),
          arg("grad").noconvert(), arg("grad_score").noconvert(), arg("grad_right").noconvert(), arg("threads"));
    m.def("attend_backward_sources", &attend_backward_sources<T>, arg("dst_pos").noconvert(),
          arg("t_start").noconvert(), arg("t_edge").noconvert(), arg("t_dst").noconvert(), arg("kept").noconvert(),
          arg("scale"), arg("alpha").noconvert(), arg("grad").noconvert(), arg("grad_score").noconvert(),
          arg("grad_z").noconvert(), arg("grad_left").noconvert(), arg("num_edges"), arg("threads"));
}

template <class Id>
static void bind_mask(py::module_& m) {
    using py::arg;
    m.def("edge_mask", &edge_mask<Id>, arg("start").noconvert(), arg("end").noconvert(), arg("indices").noconvert(),
          arg("dst_pos").noconvert(), arg("src_ids").noconvert(), arg("key"), arg("threshold"),
          arg("kept").noconvert(), arg("threads"));
}

void bind_attention(py::module_& m) {
    bind<float>(m);
    bind<double>(m);
    bind_mask<int32_t>(m);
    bind_mask<int64_t>(m);
}

}  // namespace graphmill
