// Softmax attention over a block's edges; see kernels/layers/attention.py.
//
// A thread takes a piece of rows, works out the factors of all its edges (edge_softmax.h), and then sums rows (spread_rows.h): the
// prefetch sees beyond the end of a row. A row with very many edges is weighed first, and its columns are shared by threads.
#include <vector>

#include "base/parallel.h"
#include "layers/block_view.h"
#include "layers/edge_softmax.h"
#include "layers/spread_rows.h"
#include "layers/work_split.h"

namespace graphmill {
namespace {

template <class T>
void attend(Array<int32_t> start, Array<int32_t> end, Array<int32_t> indices, Optional<int32_t> dst_pos,
            Array<T> z, Array<T> left, Array<T> right, Sum<T> slope, Optional<uint8_t> kept, Sum<T> scale,
            Optional<float> weight, Array<Sum<T>> alpha, Array<T> out, int threads) {
    const BlockView block = view_of(start, end, indices, dst_pos, z.shape(0));
    const Heads<Sum<T>> heads(left.shape(1), z.shape(1));
    const Scores<T> given{block, left.data(), right.data(), slope, scale, kept ? kept->data() : nullptr,
                          weight ? weight->data() : nullptr, alpha.mutable_data(), heads.heads};
    const T* rows = z.data();
    T* output = out.mutable_data();
    py::gil_scoped_release unlocked;
    const std::vector<Piece> pieces = cut_block(block, heads.width, HUB_VECTORS * LANES<T>, threads);
    const std::vector<Piece> hubs = hubs_of(pieces, heads.width);
    parallel_for(hubs.size(), 1, threads, [&](int64_t first, int64_t last) {
        Edges<Sum<T>> edges;
        for (int64_t p = first; p < last; ++p) {
            check_sources(block, hubs[p]);
            weigh(given, hubs[p], edges);
        }
    });
    parallel_for(pieces.size(), 1, threads, [&](int64_t first, int64_t last) {
        Edges<Sum<T>> edges;
        std::vector<Sum<T>> partial;
        for (int64_t p = first; p < last; ++p) {
            const Piece& piece = pieces[p];
            if (piece.column_end - piece.column < heads.width) {
                int64_t from = 0;
                spread_hub(rows, heads, edges, piece, partial, output + piece.from * heads.width,
                           [&] { return weighed_edges(given, piece.from, from, edges); });
                continue;
            }
            check_sources(block, piece);
            weigh(given, piece, edges);
            spread_rows(rows, heads, edges, piece.from, block.num_dst, output);
        }
    });
}

template <class T>
void bind(py::module_& m) {
    using py::arg;
    m.def("attend", &attend<T>, arg("start").noconvert(), arg("end").noconvert(), arg("indices").noconvert(),
          arg("dst_pos").noconvert(), arg("z").noconvert(), arg("left").noconvert(), arg("right").noconvert(),
          arg("slope"), arg("kept").noconvert(), arg("scale"), arg("weight").noconvert(), arg("alpha").noconvert(),
          arg("out").noconvert(), arg("threads"));
}

}  // namespace

void bind_attention(py::module_& m) {
    bind<float>(m);
    bind<double>(m);
    bind<Half>(m);
    bind<BFloat>(m);
}

}  // namespace graphmill
