// Compressed columns from an edge list, by buckets of destinations; see kernels/graph/csc.py.
#include "graph/graph.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/input_error.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

template <class Out>
struct Pair {
    Out dst, src;
};

std::string edge_text(int64_t e, int64_t src, int64_t dst) {
    return "edge " + std::to_string(e) + ": " + std::to_string(src) + " -> " + std::to_string(dst);
}

[[noreturn]] void refuse_edges(int64_t bad, int64_t num_edges, int64_t num_nodes, const std::string& examples) {
    throw InputError(std::to_string(bad) + " of " + std::to_string(num_edges) + " edges name a node outside 0.." +
                         std::to_string(num_nodes - 1) + " (" + examples + ")",
                     "correct the edges, or give the right number of nodes");
}

[[noreturn]] void refuse_degree(int64_t node, int64_t degree) {
    throw InputError("node " + std::to_string(node) + " has " + std::to_string(degree) + " in-edges; a row may have 2147483647",
                     "merge duplicate edges");
}

// One build: `In` is the id type of the edge list, `Out` that of the graph.
template <class In, class Out>
class Builder {
  public:
    Builder(const In* src, const In* dst, int64_t num_edges, int64_t num_nodes, bool undirected, bool merge,
            bool drop_loops, int threads)
        : src_(src), dst_(dst), num_edges_(num_edges), num_nodes_(num_nodes), undirected_(undirected), merge_(merge),
          drop_loops_(drop_loops), threads_(threads) {
        // A bucket's destinations fit a core's cache; few enough buckets that writing to all at once does not miss.
        while ((num_nodes_ - 1) >> shift_ >= MAX_BUCKETS) ++shift_;
        num_buckets_ = num_nodes_ > 0 ? ((num_nodes_ - 1) >> shift_) + 1 : 0;
        pieces_ = std::min<int64_t>(std::max<int64_t>(1, num_edges_ / 65536), 4 * int64_t{threads_});
    }

    void build() {
        check_range();
        std::vector<int64_t> cursor = count_buckets();
        scatter(cursor);
        indptr = Buffer<int64_t>(num_nodes_ + 1);
        indptr[0] = 0;
        parallel_for(num_buckets_, 1, threads_, [&](int64_t begin, int64_t end) {
            for (int64_t bucket = begin; bucket < end; ++bucket) sort_bucket(bucket);
        });
        sum_lengths();
        copy_out();
        count_out_degrees();
    }

    Buffer<int64_t> indptr;
    Buffer<Out> indices;
    Buffer<int32_t> in_degree, out_degree;
    int64_t num_duplicates = 0, num_self_loops = 0;

  private:
    static constexpr int64_t MAX_BUCKETS = 1024;

    void check_range() const {
        std::atomic<bool> sound{true};
        parallel_for(num_edges_, 1 << 16, threads_, [&](int64_t begin, int64_t end) {
            bool fine = true;
            for (int64_t e = begin; e < end; ++e) {
                fine &= (src_[e] >= 0) & (src_[e] < num_nodes_) & (dst_[e] >= 0) & (dst_[e] < num_nodes_);
            }
            if (!fine) sound = false;
        });
        if (sound) return;
        std::string examples;
        int64_t bad = 0;
        for (int64_t e = 0; e < num_edges_; ++e) {
            if (src_[e] >= 0 && src_[e] < num_nodes_ && dst_[e] >= 0 && dst_[e] < num_nodes_) continue;
            if (++bad > 3) continue;
            if (bad > 1) examples += ", ";
            examples += edge_text(e, src_[e], dst_[e]);
        }
        refuse_edges(bad, num_edges_, num_nodes_, examples);
    }

    // Calls visit(dst, src) for the directed edges of one piece of the list. A self-loop is its own reverse.
    template <class Visit>
    void each_edge(int64_t piece, Visit visit) const {
        const int64_t begin = num_edges_ * piece / pieces_, end = num_edges_ * (piece + 1) / pieces_;
        for (int64_t e = begin; e < end; ++e) {
            const In source = src_[e], target = dst_[e];
            if (source == target) {
                if (!drop_loops_) visit(target, source);
                continue;
            }
            visit(target, source);
            if (undirected_) visit(source, target);
        }
    }

    // Returns where each piece writes in each bucket, [bucket][piece], and sets the buckets' bounds.
    std::vector<int64_t> count_buckets() {
        std::vector<int64_t> count(num_buckets_ * pieces_, 0), loops(pieces_, 0);
        parallel_for(pieces_, 1, threads_, [&](int64_t first, int64_t last) {
            for (int64_t piece = first; piece < last; ++piece) {
                std::vector<int64_t> mine(num_buckets_, 0);
                each_edge(piece, [&](In target, In) { ++mine[target >> shift_]; });
                for (int64_t b = 0; b < num_buckets_; ++b) count[b * pieces_ + piece] = mine[b];
                const int64_t begin = num_edges_ * piece / pieces_, end = num_edges_ * (piece + 1) / pieces_;
                for (int64_t e = begin; e < end; ++e) loops[piece] += src_[e] == dst_[e];
            }
        });
        for (int64_t found : loops) num_self_loops += found;
        bounds_.assign(num_buckets_ + 1, 0);
        int64_t total = 0;
        for (int64_t slot = 0; slot < static_cast<int64_t>(count.size()); ++slot) {
            if (slot % pieces_ == 0) bounds_[slot / pieces_] = total;
            const int64_t size = count[slot];
            count[slot] = total;
            total += size;
        }
        bounds_[num_buckets_] = total;
        return count;
    }

    void scatter(std::vector<int64_t>& cursor) {
        pairs_ = Buffer<Pair<Out>>(bounds_[num_buckets_]);
        parallel_for(pieces_, 1, threads_, [&](int64_t first, int64_t last) {
            for (int64_t piece = first; piece < last; ++piece) {
                std::vector<int64_t> mine(num_buckets_);
                for (int64_t b = 0; b < num_buckets_; ++b) mine[b] = cursor[b * pieces_ + piece];
                each_edge(piece, [&](In target, In source) {
                    pairs_[mine[target >> shift_]++] = {static_cast<Out>(target), static_cast<Out>(source)};
                });
            }
        });
    }

    // Sorts one bucket's rows, merges duplicates, leaves the sources where the pairs were and row lengths in indptr.
    void sort_bucket(int64_t bucket) {
        const int64_t first = bounds_[bucket], size = bounds_[bucket + 1] - first;
        const int64_t low = bucket << shift_, high = std::min(num_nodes_, (bucket + 1) << shift_);
        std::vector<int64_t> place(high - low + 1, 0);
        const Pair<Out>* pairs = pairs_.data() + first;
        for (int64_t e = 0; e < size; ++e) ++place[pairs[e].dst - low + 1];
        for (size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
        std::vector<int64_t> cursor(place.begin(), place.end() - 1);
        Buffer<Out> rows(size);
        for (int64_t e = 0; e < size; ++e) rows[cursor[pairs[e].dst - low]++] = pairs[e].src;
        Out* out = sorted(first);
        for (int64_t v = low; v < high; ++v) {
            Out *begin = rows.data() + place[v - low], *end = rows.data() + place[v - low + 1];
            std::sort(begin, end);
            const Out* stop = merge_ ? std::unique(begin, end) : end;
            out = std::copy(static_cast<const Out*>(begin), stop, out);
            indptr[v + 1] = stop - begin;
        }
    }

    // The memory of a bucket's pairs, once they are no longer needed, holds its sorted sources.
    Out* sorted(int64_t first) { return reinterpret_cast<Out*>(pairs_.data() + first); }

    void sum_lengths() {
        in_degree = Buffer<int32_t>(num_nodes_);
        for (int64_t v = 0; v < num_nodes_; ++v) {
            const int64_t degree = indptr[v + 1];
            if (degree > std::numeric_limits<int32_t>::max()) refuse_degree(v, degree);
            in_degree[v] = static_cast<int32_t>(degree);
            indptr[v + 1] += indptr[v];
        }
        num_duplicates = bounds_[num_buckets_] - indptr[num_nodes_];
    }

    void copy_out() {
        indices = Buffer<Out>(indptr[num_nodes_]);
        std::atomic<int64_t> repeats{0};
        parallel_for(num_buckets_, 1, threads_, [&](int64_t begin, int64_t end) {
            for (int64_t bucket = begin; bucket < end; ++bucket) {
                const int64_t low = bucket << shift_, high = std::min(num_nodes_, (bucket + 1) << shift_);
                const Out* from = sorted(bounds_[bucket]);
                std::copy(from, from + (indptr[high] - indptr[low]), indices.data() + indptr[low]);
                if (!merge_) repeats += count_repeats(low, high);
            }
        });
        if (!merge_) num_duplicates = repeats;
        pairs_ = Buffer<Pair<Out>>();
    }

    int64_t count_repeats(int64_t low, int64_t high) const {
        int64_t repeats = 0;
        for (int64_t v = low; v < high; ++v) {
            for (int64_t e = indptr[v] + 1; e < indptr[v + 1]; ++e) repeats += indices[e] == indices[e - 1];
        }
        return repeats;
    }

    void count_out_degrees() {
        out_degree = Buffer<int32_t>(num_nodes_);
        std::copy(in_degree.data(), in_degree.data() + num_nodes_, out_degree.data());
        if (undirected_) return;  // every edge has its reverse
        std::fill(out_degree.data(), out_degree.data() + num_nodes_, 0);
        std::atomic<bool> fits{true};
        parallel_for(indices.size(), 1 << 16, threads_, [&](int64_t begin, int64_t end) {
            for (int64_t e = begin; e < end; ++e) {
                if (__atomic_add_fetch(&out_degree[indices[e]], 1, __ATOMIC_RELAXED) < 0) fits = false;
            }
        });
        if (!fits) throw InputError("a node has more than 2147483647 out-edges", "merge duplicate edges");
    }

    const In *src_, *dst_;
    int64_t num_edges_, num_nodes_;
    bool undirected_, merge_, drop_loops_;
    int threads_, shift_ = 10;  // at least 1,024 destinations a bucket
    int64_t num_buckets_ = 0, pieces_ = 1;
    std::vector<int64_t> bounds_;  // [num_buckets + 1] first pair of each bucket
    Buffer<Pair<Out>> pairs_;
};

}  // namespace

template <class In, class Out>
CscArrays<Out> build_csc(Array<const In> src, Array<const In> dst, int64_t num_nodes, bool undirected, bool merge, bool drop_loops,
                         int threads) {
    Builder<In, Out> builder(src.data(), dst.data(), src.size(), num_nodes, undirected, merge, drop_loops, threads);
    builder.build();
    return {std::move(builder.indptr),     std::move(builder.indices), std::move(builder.in_degree),
            std::move(builder.out_degree), builder.num_duplicates,     builder.num_self_loops};
}

template decltype(build_csc<int32_t, int32_t>) build_csc<int32_t, int32_t>;
template decltype(build_csc<int32_t, int64_t>) build_csc<int32_t, int64_t>;
template decltype(build_csc<int64_t, int32_t>) build_csc<int64_t, int32_t>;
template decltype(build_csc<int64_t, int64_t>) build_csc<int64_t, int64_t>;

}  // namespace graphmill
