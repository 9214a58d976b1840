// Softmax attention over a block's edges and its gradient; see kernels/attention.py.
//
// Forward and the first half of backward go by destinations, the second half by sources over the transpose. So every
// output row is written once, by one thread, from rows taken in edge order. A thread takes a piece of rows, works out the
// factors of all its edges, and then sums rows (spread_rows.h): the prefetch sees beyond the end of a row.
#include <algorithm>
#include <limits>
#include <vector>

#include "block_rows.h"
#include "each_head.h"
#include "parallel.h"
#include "pieces.h"
#include "spread_rows.h"
#include "vector_exp.h"

namespace graphmill {

static std::vector<Piece> pieces_of(const Rows& block) {
    return cut_rows(block.num_dst, block.begins, block.ends, block.num_edges, 1, 0, "the block's start and end");
}

static void check_sources(const Rows& block, const Piece& piece) {
    const std::string problem = "the block has a local source id outside 0.." + std::to_string(block.num_src - 1);
    check_edges(piece, block.begins, block.ends, block.sources, block.num_src, problem.c_str(),
                "indices are local: rows of src_ids, not global node ids");
}

// exp of every number, in place; `values` is as long as whole vectors of its numbers.
template <class S>
static void exp_all(std::vector<S>& values, size_t count) {
    using Vector = typename Wide<S>::Vector;
    for (size_t at = 0; at < count; at += Wide<S>::LANES) {
        Vector* place = reinterpret_cast<Vector*>(values.data() + at);
        *place = exp_of<S>(*place);
    }
}

// What the weights of one block are made from and written to.
template <class T>
struct Scores {
    Rows block;
    const T *left, *right;
    Sum<T> slope, scale;
    const uint8_t* mask;
    Sum<T>* alpha;
    int64_t heads;
};

// The source rows of a piece's edges, row by row, own terms included.
template <class S>
static void list_edges(const Rows& block, const Piece& piece, int64_t heads, Edges<S>& edges) {
    int64_t count = piece.to - piece.from;
    for (int64_t i = piece.from; i < piece.to; ++i) count += block.ends[i] - block.begins[i];
    edges.resize(piece.to - piece.from, count, heads);
    int32_t* at = edges.rows.data();
    for (int64_t i = piece.from; i < piece.to; ++i) {
        at = std::copy(block.sources + block.begins[i], block.sources + block.ends[i], at);
        *at++ = static_cast<int32_t>(block.own(i));
        edges.begins[i - piece.from + 1] = at - edges.rows.data();
    }
}

// Takes the masks into the factors.
template <class T>
static void drop(const Scores<T>& given, const Piece& piece, Sum<T>* factors) {
    for (int64_t i = piece.from; i < piece.to; ++i) {
        each_edge(given.block, i, [&](int64_t e, int64_t) {
            for (int64_t h = 0; h < given.heads; ++h) *factors++ *= given.mask[e * given.heads + h] * given.scale;
        });
    }
}

// Softmax weights of a piece of rows: to alpha, and times their masks to edges.factors.
template <int FIXED, class T>
static void weigh(const Scores<T>& given, const Piece& piece, Edges<Sum<T>>& edges) {
    using S = Sum<T>;
    const Rows& block = given.block;
    const int64_t heads = FIXED ? FIXED : given.heads;
    list_edges(block, piece, heads, edges);
    EachHead<S, FIXED> most(heads), inverse(heads), right(heads);
    const int32_t* source = edges.rows.data();
    S* const factors = edges.factors.data();
    for (int64_t i = piece.from; i < piece.to; ++i) {
        const int64_t begin = edges.begins[i - piece.from], end = edges.begins[i - piece.from + 1];
        most.fill(-std::numeric_limits<S>::infinity());
        for (int64_t h = 0; h < heads; ++h) right[h] = widen(given.right[i * heads + h]);
        for (int64_t k = begin; k < end; ++k) {
            const T* left = given.left + source[k] * heads;
            for (int64_t h = 0; h < heads; ++h) {
                const S raw = widen(left[h]) + right[h], score = raw > 0 ? raw : raw * given.slope;
                factors[k * heads + h] = score;
                most[h] = score > most[h] ? score : most[h];
            }
        }
        for (int64_t k = begin; k < end; ++k) {
            for (int64_t h = 0; h < heads; ++h) factors[k * heads + h] -= most[h];
        }
    }
    exp_all(edges.factors, edges.rows.size() * heads);
    for (int64_t i = piece.from; i < piece.to; ++i) {
        const int64_t begin = edges.begins[i - piece.from], end = edges.begins[i - piece.from + 1];
        inverse.fill(0);
        for (int64_t k = begin; k < end; ++k) {
            for (int64_t h = 0; h < heads; ++h) inverse[h] += factors[k * heads + h];
        }
        for (int64_t h = 0; h < heads; ++h) inverse[h] = S(1) / inverse[h];
        S* const alpha = given.alpha + block.begins[i] * heads;
        for (int64_t at = begin * heads; at < end * heads; at += heads) {
            for (int64_t h = 0; h < heads; ++h) factors[at + h] *= inverse[h];
        }
        std::copy(factors + begin * heads, factors + (end - 1) * heads, alpha);
        std::copy(factors + (end - 1) * heads, factors + end * heads, given.alpha + (block.num_edges + i) * heads);
    }
    if (given.mask) drop(given, piece, factors);
}

template <class T>
static void attend(Array<int32_t> start, Array<int32_t> end, Array<int32_t> indices, Optional<int32_t> dst_pos,
                   Array<T> z, Array<T> left, Array<T> right, Sum<T> slope, Optional<uint8_t> kept, Sum<T> scale,
                   Array<Sum<T>> alpha, Array<T> out, int threads) {
    const Rows block = rows_of(start, end, indices, dst_pos, z.shape(0));
    const Heads<Sum<T>> heads(left.shape(1), z.shape(1));
    const Scores<T> given{block, left.data(), right.data(), slope, scale, kept ? kept->data() : nullptr,
                          alpha.mutable_data(), heads.heads};
    const T* rows = z.data();
    T* output = out.mutable_data();
    py::gil_scoped_release unlocked;
    const std::vector<Piece> pieces = pieces_of(block);
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        Edges<Sum<T>> edges;
        for (int64_t p = first; p < last; ++p) {
            check_sources(block, pieces[p]);
            with_heads(heads.heads, [&](auto fixed) { weigh<fixed.value>(given, pieces[p], edges); });
            spread_rows(rows, heads, edges, output + pieces[p].from * heads.width);
        }
    });
}

// What the gradient of a piece's scores is made from and written to; grad_score[edge row, head] is what the sources gather afterwards.
template <class T>
struct ScoreGradient {
    Rows block;
    Heads<Sum<T>> heads;
    const T *rows, *left, *right, *grad;
    Sum<T> slope, scale;
    const Sum<T>* alpha;
    const uint8_t* mask;
    Sum<T>* grad_score;
    T* grad_right;
};

template <int FIXED, class T>
static void grade(const ScoreGradient<T>& given, const Piece& piece) {
    using S = Sum<T>;
    const Rows& block = given.block;
    const int64_t heads = FIXED ? FIXED : given.heads.heads, width = given.heads.width, line = 64 / sizeof(T);
    EachHead<S, FIXED> mean(heads), total(heads);
    for (int64_t i = piece.from; i < piece.to; ++i) {
        mean.fill(0);
        total.fill(0);
        each_edge(block, i, [&](int64_t e, int64_t s) {
            if (e + EDGES_AHEAD < block.num_edges) {
                const T* next = given.rows + int64_t{block.sources[e + EDGES_AHEAD]} * width;
                for (int64_t c = 0; c < width; c += line) __builtin_prefetch(next + c);
            }
            S* dots = given.grad_score + e * heads;
            head_dots(given.grad + i * width, given.rows + s * width, given.heads, dots);
            for (int64_t h = 0; h < heads; ++h) {
                if (given.mask) dots[h] *= given.mask[e * heads + h] * given.scale;
                mean[h] += given.alpha[e * heads + h] * dots[h];
            }
        });
        each_edge(block, i, [&](int64_t e, int64_t s) {
            for (int64_t h = 0; h < heads; ++h) {
                const int64_t at = e * heads + h;
                const S raw = widen(given.left[s * heads + h]) + widen(given.right[i * heads + h]);
                const S found = given.alpha[at] * (given.grad_score[at] - mean[h]) * (raw > 0 ? S(1) : given.slope);
                given.grad_score[at] = found;
                total[h] += found;
            }
        });
        for (int64_t h = 0; h < heads; ++h) given.grad_right[i * heads + h] = narrow<T>(total[h]);
    }
}

template <class T>
static void attend_backward_rows(Array<int32_t> start, Array<int32_t> end, Array<int32_t> indices,
                                 Optional<int32_t> dst_pos, Array<T> z, Array<T> left, Array<T> right, Sum<T> slope,
                                 Optional<uint8_t> kept, Sum<T> scale, Array<Sum<T>> alpha, Array<T> grad,
                                 Array<Sum<T>> grad_score, Array<T> grad_right, int threads) {
    const Rows block = rows_of(start, end, indices, dst_pos, z.shape(0));
    const ScoreGradient<T> given{
        block, Heads<Sum<T>>(left.shape(1), z.shape(1)), z.data(), left.data(), right.data(), grad.data(), slope, scale,
        alpha.data(), kept ? kept->data() : nullptr, grad_score.mutable_data(), grad_right.mutable_data()};
    py::gil_scoped_release unlocked;
    const std::vector<Piece> pieces = pieces_of(block);
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        for (int64_t p = first; p < last; ++p) {
            check_sources(block, pieces[p]);
            with_heads(given.heads.heads, [&](auto fixed) { grade<fixed.value>(given, pieces[p]); });
        }
    });
}

// Where each source is a destination, else -1.
static std::vector<int32_t> own_rows(int64_t num_src, int64_t num_dst, const int32_t* place) {
    std::vector<int32_t> own(num_src, -1);
    for (int64_t i = 0; i < num_dst; ++i) {
        int32_t& row = own[place ? place[i] : i];
        if (row >= 0) throw InputError("dst_pos names a source row twice", "list every destination once");
        row = static_cast<int32_t>(i);
    }
    return own;
}

// What the sources pull over the transpose.
template <class T>
struct Pull {
    const int32_t *firsts, *edge_of, *dst_of, *own;
    const uint8_t* mask;
    Sum<T> scale;
    const Sum<T>*alpha, *grad_score;
    T* grad_left;
    int64_t num_edges, heads;
};

// The factors of a piece's edges, and its rows of grad_left.
template <int FIXED, class T>
static void pull(const Pull<T>& given, const Piece& piece, Edges<Sum<T>>& edges) {
    using S = Sum<T>;
    const int64_t heads = FIXED ? FIXED : given.heads, first = given.firsts[piece.from];
    edges.resize(piece.to - piece.from, given.firsts[piece.to] - first + piece.to - piece.from, heads);
    EachHead<S, FIXED> left(heads);
    int64_t k = 0;
    for (int64_t s = piece.from; s < piece.to; ++s) {
        left.fill(0);
        const auto take = [&](int64_t e, int32_t i) {
            edges.rows[k] = i;
            S* factor = edges.factors.data() + k++ * heads;
            for (int64_t h = 0; h < heads; ++h) {
                left[h] += given.grad_score[e * heads + h];
                factor[h] = given.alpha[e * heads + h];
                if (given.mask) factor[h] *= given.mask[e * heads + h] * given.scale;
            }
        };
        for (int64_t t = given.firsts[s]; t < given.firsts[s + 1]; ++t) take(given.edge_of[t], given.dst_of[t]);
        if (given.own[s] >= 0) take(given.num_edges + given.own[s], given.own[s]);
        edges.begins[s - piece.from + 1] = k;
        for (int64_t h = 0; h < heads; ++h) given.grad_left[s * heads + h] = narrow<T>(left[h]);
    }
    edges.rows.resize(k);
}

template <class T>
static void attend_backward_sources(Optional<int32_t> dst_pos, Array<int32_t> t_start, Array<int32_t> t_edge,
                                    Array<int32_t> t_dst, Optional<uint8_t> kept, Sum<T> scale, Array<Sum<T>> alpha,
                                    Array<T> grad, Array<Sum<T>> grad_score, Array<T> grad_z, Array<T> grad_left,
                                    int64_t num_edges, int threads) {
    const Heads<Sum<T>> heads(grad_left.shape(1), grad_z.shape(1));
    Pull<T> given{t_start.data(), t_edge.data(), t_dst.data(), nullptr, kept ? kept->data() : nullptr, scale,
                  alpha.data(), grad_score.data(), grad_left.mutable_data(), num_edges, heads.heads};
    const int32_t* place = dst_pos ? dst_pos->data() : nullptr;
    const T* grads = grad.data();
    T* output = grad_z.mutable_data();
    const int64_t num_dst = grad.shape(0), num_src = grad_z.shape(0), num_transposed = t_dst.size();
    py::gil_scoped_release unlocked;
    const auto pieces =
        cut_rows(num_src, given.firsts, given.firsts + 1, num_transposed, 1, 0, "the starts of the transpose");
    const std::vector<int32_t> own = own_rows(num_src, num_dst, place);
    given.own = own.data();
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        Edges<Sum<T>> edges;
        for (int64_t p = first; p < last; ++p) {
            const Piece& piece = pieces[p];
            check_edges(piece, given.firsts, given.firsts + 1, given.dst_of, num_dst,
                        "the transpose names a destination that its block does not have", "call transpose() again");
            check_edges(piece, given.firsts, given.firsts + 1, given.edge_of, num_edges,
                        "the transpose names an edge that its block does not have", "call transpose() again");
            with_heads(given.heads, [&](auto fixed) { pull<fixed.value>(given, piece, edges); });
            spread_rows(grads, heads, edges, output + piece.from * heads.width);
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

void bind_attention(py::module_& m) {
    bind<float>(m);
    bind<double>(m);
    bind<Half>(m);
    bind<BFloat>(m);
}

}  // namespace graphmill
