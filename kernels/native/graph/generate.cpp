// Random graphs, labels and features of any size; see kernels/graph/generate.py for the models.
#include "graph/graph.h"

#include "base/parallel.h"
#include "graph/permutation.h"
#include "graph/rmat.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 1 << 14;  // edges or nodes a thread takes at a time

// Node `rank` cites earlier ones; its edges are those e with e N / E = rank. A copied edge is worked out again from its number, so no
// edge needs another one to exist. Ranks fall at every step, which ends the search.
class Citations {
  public:
    Citations(uint64_t key, int64_t num_nodes, int64_t num_edges, int64_t classes, uint64_t inside, uint64_t copied)
        : key_(key), nodes_(num_nodes), edges_(num_edges), classes_(classes), inside_(inside), copied_(copied) {}

    uint64_t from(uint64_t e) const { return static_cast<uint64_t>(static_cast<unsigned __int128>(e) * nodes_ / edges_); }

    uint64_t to(uint64_t e) const {
        for (;;) {
            const uint64_t rank = from(e), earlier_of_class = rank / classes_;
            if (rank == 0) return 0;
            const uint64_t edge_key = absorb(key_, e), bits = draw(edge_key, 0);
            const bool inside = (bits & 0xFFFFFFFF) < inside_ && earlier_of_class > 0;
            const uint64_t place = bounded(draw(edge_key, 1), inside ? earlier_of_class : rank);
            const uint64_t cited = inside ? place * classes_ + rank % classes_ : place;
            const uint64_t first = first_edge(cited), count = first_edge(cited + 1) - first;
            if (bits >> 32 >= copied_ || count == 0) return cited;
            e = first + bounded(draw(edge_key, 2), count);
        }
    }

  private:
    uint64_t first_edge(uint64_t rank) const {
        return static_cast<uint64_t>((static_cast<unsigned __int128>(rank) * edges_ + nodes_ - 1) / nodes_);
    }

    uint64_t key_, nodes_, edges_, classes_, inside_, copied_;
};

}  // namespace

// Edges are made in ranges: the arrays of a call receive edges first .. first + size - 1.

template <class Id>
void rmat(uint64_t key, uint64_t scramble_key, bool scrambled, int64_t num_nodes, int scale, uint32_t top_left, uint32_t top,
          uint32_t all_but_last, int64_t first, Array<Id> src, Array<Id> dst, int threads) {
    Id *sources = src.data(), *targets = dst.data();
    const int64_t num_edges = src.size();
    const Rmat graph(key, Permutation(scramble_key, num_nodes, scrambled), num_nodes, scale, top_left, top, all_but_last);
    parallel_for(num_edges, PIECE, threads, [=](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e) graph.edge(first + e, sources[e], targets[e]);
    });
}

// Classes are ranges of ranks: class c holds ceil(c n / C) .. ceil((c + 1) n / C) - 1.
template <class Id>
void sbm(uint64_t key, uint64_t scramble_key, int64_t num_nodes, int64_t classes, uint64_t threshold, int64_t first, Array<Id> src,
         Array<Id> dst, int threads) {
    Id *sources = src.data(), *targets = dst.data();
    const int64_t num_edges = src.size();
    const Permutation names(scramble_key, num_nodes, true);
    parallel_for(num_edges, PIECE, threads, [=](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e) {
            const uint64_t edge_key = absorb(key, first + e);
            const uint64_t from = bounded(draw(edge_key, 0), num_nodes);
            const uint64_t label = from * classes / num_nodes;
            const uint64_t low = (label * num_nodes + classes - 1) / classes;
            const uint64_t size = ((label + 1) * num_nodes + classes - 1) / classes - low;
            const uint64_t outside = num_nodes - size;
            uint64_t to;
            if (draw(edge_key, 1) >> 32 < threshold || outside == 0) {
                to = low + bounded(draw(edge_key, 2), size);
            } else {
                to = bounded(draw(edge_key, 2), outside);
                to += to >= low ? size : 0;
            }
            sources[e] = static_cast<Id>(names.forward(from));
            targets[e] = static_cast<Id>(names.forward(to));
        }
    });
}

template <class Id>
void citations(uint64_t key, uint64_t scramble_key, bool scrambled, int64_t num_nodes, int64_t classes, uint64_t inside, uint64_t copied,
               int64_t all_edges, int64_t first, Array<Id> src, Array<Id> dst, int threads) {
    Id *sources = src.data(), *targets = dst.data();
    const int64_t num_edges = src.size();
    const Permutation names(scramble_key, num_nodes, scrambled);
    const Citations graph(key, num_nodes, all_edges, classes, inside, copied);
    parallel_for(num_edges, PIECE, threads, [=](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e) {
            sources[e] = static_cast<Id>(names.forward(graph.from(first + e)));
            targets[e] = static_cast<Id>(names.forward(graph.to(first + e)));
        }
    });
}

void cyclic_labels(uint64_t scramble_key, bool scrambled, int64_t classes, Array<int32_t> out, int threads) {
    int32_t* labels = out.data();
    const int64_t num_nodes = out.size();
    const Permutation names(scramble_key, num_nodes, scrambled);
    parallel_for(num_nodes, PIECE, threads, [=](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) labels[v] = static_cast<int32_t>(names.backward(v) % classes);
    });
}

void block_labels(uint64_t scramble_key, bool scrambled, int64_t classes, Array<int32_t> out, int threads) {
    int32_t* labels = out.data();
    const int64_t num_nodes = out.size();
    const Permutation names(scramble_key, num_nodes, scrambled);
    parallel_for(num_nodes, PIECE, threads, [=](int64_t begin, int64_t end) {
        for (int64_t v = begin; v < end; ++v) labels[v] = static_cast<int32_t>(names.backward(v) * classes / num_nodes);
    });
}

// Rows are those of nodes first .. first + rows - 1; labels belong to them. Integers below 2^24, then an exact product.
void class_features(Array<const int32_t> labels, Array<const int32_t> centroids, uint64_t key, int32_t noise, int64_t first,
                    Array<float> out, int threads) {
    const int32_t *label = labels.data(), *centroid = centroids.data();
    float* result = out.data();
    const int64_t rows = out.shape(0), width = out.shape(1);
    parallel_for(rows, 256, threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t node_key = absorb(key, first + i);
            const int32_t* middle = label[i] < 0 ? nullptr : centroid + label[i] * width;
            float* row = result + i * width;
            for (int64_t c = 0; c < width; ++c) {
                const int32_t deviation = noise * (byte_sum(draw(node_key, c)) - BYTE_SUM_MEAN);
                row[c] = static_cast<float>(deviation + (middle ? 256 * middle[c] : 0)) * 0x1p-16f;
            }
        }
    });
}

template decltype(rmat<int32_t>) rmat<int32_t>;
template decltype(rmat<int64_t>) rmat<int64_t>;
template decltype(sbm<int32_t>) sbm<int32_t>;
template decltype(sbm<int64_t>) sbm<int64_t>;
template decltype(citations<int32_t>) citations<int32_t>;
template decltype(citations<int64_t>) citations<int64_t>;

}  // namespace graphmill
