// Fused neighbour sampling: FastSample, section 3.2, Algorithm 1. kernels/sampling/sample.py tells the idea and states the rule.

#include <atomic>
#include <cstring>
#include <vector>

#include "sampling/layer.h"
#include "base/parallel.h"
#include "sampling/sampled_row.h"
#include "sampling/topology.h"
#include "sampling/local_ids.h"
#include "sampling/two_step.h"

namespace graphmill {
namespace {

// Which blocks get a transpose: those above the first need one to pass gradients on.
enum class Transposed { None = 0, Hidden = 1, All = 2 };

template <class Id>
class Sampler {
  public:
    Sampler(Array<int64_t> indptr, Array<Id> indices, std::vector<int64_t> fanouts, bool replace, int threads,
            bool fused)
        : topology_(indptr, indices), seats_(topology_.num_nodes()), fanouts_(std::move(fanouts)), replace_(replace),
          threads_(threads), fused_(fused), nodes_(topology_.num_nodes() + 1) {
        py::gil_scoped_release unlocked;
        topology_.check();
    }

    py::tuple sample(uint64_t batch_key, Array<Id> seeds, int transposed, bool positions) {
        if (busy_.exchange(true)) {
            throw InputError("two threads use one Sampler at the same time", "make one Sampler for each thread");
        }
        struct Unlock {
            std::atomic<bool>& flag;
            ~Unlock() { flag = false; }
        } unlock{busy_};
        std::vector<Layer> layers(fanouts_.size());
        Buffer<Id> src_ids;
        {
            const Id* first = seeds.data();
            const int64_t num_seeds = seeds.size();
            py::gil_scoped_release unlocked;
            seat_seeds(first, num_seeds);
            for (int64_t block = static_cast<int64_t>(fanouts_.size()) - 1; block >= 0; --block) {
                const int64_t fanout = fanouts_[fanouts_.size() - 1 - block];
                const uint64_t layer_key = absorb(batch_key, block);
                layers[block] = fused_ ? sample_layer(layer_key, fanout, positions)
                                       : sample_in_two_steps(layer_key, fanout, positions);
                if (transposed == int(Transposed::All) || (transposed == int(Transposed::Hidden) && block > 0)) {
                    turn(layers[block]);
                }
            }
            src_ids = Buffer<Id>(count_);
            most_nodes_ = std::max(most_nodes_, count_);
            parallel_for(count_, 1 << 16, threads_, [&](int64_t begin, int64_t end) {
                std::memcpy(src_ids.data() + begin, nodes_.data() + begin, (end - begin) * sizeof(Id));
            });
        }
        py::list blocks;
        for (Layer& layer : layers) blocks.append(layer.release());
        return py::make_tuple(src_ids.release(), blocks);
    }

    // What stays between batches; pages of the map that were never touched are counted too.
    int64_t scratch_bytes() const { return seats_.num_bytes() + most_nodes_ * static_cast<int64_t>(sizeof(Id)); }

    // Adds the visits since the last call to `counts`, and forgets them.
    void take_visits(Array<uint32_t> counts) {
        uint32_t* out = counts.mutable_data();
        py::gil_scoped_release unlocked;
        seats_.take_visits(out);
    }

  private:
    static constexpr int64_t LAG = 8;     // rows between two steps: their reads are in flight together
    static constexpr int64_t SHORTEST = 128, LONGEST = 1024;  // rows that one thread takes: a pipeline is filled for each piece
    static constexpr int64_t AHEAD = 24;  // edges between the prefetch of a node's entry and its use
    static constexpr int64_t NEAR = PickedRow<Id>::NEAR;  // entries of a row's nodes that are prefetched a step ahead

    // Starts a new stamp, so that every entry of the map is stale, and gives the seeds the first local ids. The front door has
    // checked that they are in range.
    void seat_seeds(const Id* seeds, int64_t num_seeds) {
        if (num_seeds >= LOCAL_IDS) throw InputError("a batch has 2147483647 seeds or more", SMALLER);
        seats_.begin_batch();
        for (int64_t i = 0; i < num_seeds; ++i) {
            uint64_t& entry = seats_.entry(seeds[i]);
            if (seats_.taken(entry)) {
                throw InputError("seed " + std::to_string(seeds[i]) + " stands at positions " +
                                     std::to_string(seats_.local_id(entry)) + " and " + std::to_string(i),
                                 "give every seed once");
            }
            entry = seats_.seated(entry, i);
            nodes_[i] = seeds[i];
        }
        count_ = num_seeds;
    }

    // The nodes seated so far are the destinations; the rows picked for them seat the sources that are new.
    Layer sample_layer(uint64_t layer_key, int64_t fanout, bool positions) {
        Layer layer;
        layer.key = layer_key;
        layer.num_dst = count_;
        layer.replace = replace_ && fanout >= 0;  // all neighbours are all, once
        const int64_t room = find_room(layer, fanout);
        layer.start = Buffer<int32_t>(layer.num_dst);
        layer.end = Buffer<int32_t>(layer.num_dst);
        layer.indices = Buffer<int32_t>(room);
        if (positions) layer.position = Buffer<int64_t>(room);
        const int64_t piece = std::clamp(layer.num_dst / (8 * threads_), SHORTEST, LONGEST);
        const int64_t num_edges = threads_ == 1 || layer.num_dst <= piece ? pick_rows<true>(layer, fanout, 0, layer.num_dst, nullptr)
                                                                          : pick_pieces(layer, fanout, piece);
        layer.indices.shrink(num_edges);
        layer.position.shrink(num_edges);
        if (count_ > LOCAL_IDS) throw InputError("a block would have more than 2147483647 sources", SMALLER);
        layer.num_src = count_;
        return layer;
    }

    // No fewer edges than the layer will have; pages that are not used are never touched. Rows differ, so that without replacement an edge
    // is taken once at most. Lengths are added up beforehand only where this does not keep to local ids.
    int64_t find_room(const Layer& layer, int64_t fanout) const {
        const int64_t most = layer.replace ? layer.num_dst * fanout : std::min(layer.num_dst * fanout, topology_.num_edges());
        if (fanout >= 0 && most <= LOCAL_IDS) return most;
        return count_edges(topology_, nodes_.data(), layer, fanout, threads_);
    }

    // Edges of a piece of rows until they are renamed, which is when their place in the layer is known.
    struct Waiting {
        Buffer<Id> ids;
        Buffer<int64_t> position;
    };

    int64_t pick_pieces(Layer& layer, int64_t fanout, int64_t piece) {
        std::vector<Waiting> waiting(layer.num_dst / piece + 1);
        int64_t num_edges = 0;
        const auto pick = [&](int64_t begin, int64_t end) {
            Waiting& edges = waiting[begin / piece];
            edges.ids.grow((end - begin) * std::clamp<int64_t>(fanout, 1, NEAR));  // mostly enough
            pick_rows<false>(layer, fanout, begin, end, &edges);
        };
        const auto name = [&](int64_t begin, int64_t end) {
            const Waiting edges = std::move(waiting[begin / piece]);
            const int64_t count = layer.end[end - 1];
            relabel<0>(edges.ids.data(), count, layer.indices.data() + num_edges);
            if (count && layer.position.data()) {
                std::memcpy(layer.position.data() + num_edges, edges.position.data(), count * sizeof(int64_t));
            }
            for (int64_t i = begin; i < end; ++i) {
                layer.start[i] += static_cast<int32_t>(num_edges);
                layer.end[i] += static_cast<int32_t>(num_edges);
            }
            num_edges += count;
        };
        ordered_for(layer.num_dst, piece, threads_, pick, name);
        return num_edges;
    }

    // The ablation: see kernels/sampling/two_step.py.
    Layer sample_in_two_steps(uint64_t layer_key, int64_t fanout, bool positions) {
        Layer layer;
        layer.num_dst = count_;
        auto edges = sample_edges(topology_.indptr(), topology_.indices(), nodes_.data(), count_, fanout, replace_ && fanout >= 0, layer_key,
                                  positions, threads_);
        const auto local_of = [&](Id node) {
            if (node < 0 || node >= topology_.num_nodes()) topology_.refuse(node);
            uint64_t& entry = seats_.entry(node);
            if (!seats_.taken(entry)) {
                entry = seats_.seated(entry, count_);
                nodes_[count_++] = node;
            }
            return seats_.local_id(entry);
        };
        edges_to_block(edges, local_of, [&](Id node) { seats_.prefetch(node); }, layer);
        layer.num_src = count_;
        return layer;
    }

    // Three steps a row, each LAG rows behind the one before, so that what it reads is on its way: choose positions, read the
    // ids there, rename them. Misses of one row overlap the arithmetic of others. Rows start at the first edge of this call, of
    // which there are as many as it returns. If not NAMING, the edges wait for their names.
    template <bool NAMING>
    int64_t pick_rows(Layer& layer, int64_t fanout, int64_t begin, int64_t end, Waiting* waiting) {
        PickedRow<Id> rows[LAG];
        std::vector<Id> ids[LAG];  // of rows that are named here
        Chooser chooser;
        int64_t num_edges = 0;
        for (int64_t i = begin; i < end + 2 * LAG; ++i) {
            const int64_t read = i - LAG, named = read - LAG;
            if (NAMING && named >= begin && named < end) {
                const int64_t first = layer.start[named];
                relabel<NEAR>(ids[named % LAG].data(), layer.end[named] - first, layer.indices.data() + first);
            }
            if (read >= begin && read < end) {
                if (NAMING) read_row(layer, read, rows[read % LAG], ids[read % LAG]);
                else read_row(layer, read, rows[read % LAG], *waiting);
            }
            if (i + LAG < end) topology_.prefetch(nodes_[i + LAG]);
            if (i >= end) continue;
            layer.start[i] = static_cast<int32_t>(num_edges);
            num_edges += rows[i % LAG].choose(topology_, layer, fanout, nodes_[i], chooser);
            layer.end[i] = static_cast<int32_t>(num_edges);
        }
        return num_edges;
    }

    // For naming it soon.
    void read_row(Layer& layer, int64_t i, const PickedRow<Id>& row, std::vector<Id>& ids) {
        const int64_t taken = row.taken();
        if (ids.size() < static_cast<size_t>(taken)) ids.resize(taken);
        row.read(topology_, ids.data(), layer.position.data() ? layer.position.data() + layer.start[i] : nullptr);
        for (int64_t j = 0; j < std::min(taken, NEAR); ++j) seats_.prefetch(ids[j]);
    }

    void read_row(Layer& layer, int64_t i, const PickedRow<Id>& row, Waiting& waiting) {
        const int64_t first = layer.start[i], last = layer.end[i];
        waiting.ids.grow(last);
        if (layer.position.data()) waiting.position.grow(last);
        row.read(topology_, waiting.ids.data() + first, waiting.position.data() ? waiting.position.data() + first : nullptr);
    }

    static void turn(Layer& layer) {
        layer.transpose = build_transpose(layer.num_dst, layer.num_src, layer.start.data(), layer.end.data(),
                                          layer.indices.data());
    }

    // The second loop of Algorithm 1. It is called in edge order, so new sources have the same order
    // for any team. Whether a node is new is not to be guessed, so there is no branch: an old one is written again.
    // Entries from number READY on are prefetched here; who calls has asked for those before.
    template <int64_t READY>
    void relabel(const Id* ids, int64_t num_edges, int32_t* local_ids) {
        const Seats seats = seats_.view();
        Id* nodes = nodes_.data();
        uint64_t count = count_;
        for (int64_t e = 0; e < num_edges; ++e) {
            if (READY == 0 || e + AHEAD >= READY) {
                if (e + AHEAD < num_edges) seats.prefetch(ids[e + AHEAD]);
            }
            const Id node = ids[e];
            const uint64_t entry = seats.entry(node);
            const bool known = seats.taken(entry);
            const uint64_t now = known ? entry : seats.seated(entry, static_cast<int64_t>(count));
            seats.entry(node) = now;
            nodes[count] = node;
            count += !known;
            local_ids[e] = seats.local_id(now);
        }
        count_ = static_cast<int64_t>(count);
    }

    Topology<Id> topology_;
    SeatMap seats_;
    std::vector<int64_t> fanouts_;
    bool replace_;
    int threads_;
    bool fused_;
    std::atomic<bool> busy_{false};
    int64_t count_ = 0;       // nodes seated in this batch
    int64_t most_nodes_ = 0;  // of any batch
    ZeroPages<Id> nodes_;     // their global ids; every block's sources are a prefix of it. It never moves: other threads read it
};

template <class Id>
void bind(py::module_& m, const char* name) {
    py::class_<Sampler<Id>>(m, name)
        .def(py::init<Array<int64_t>, Array<Id>, std::vector<int64_t>, bool, int, bool>(), py::arg("indptr").noconvert(),
             py::arg("indices").noconvert(), py::arg("fanouts"), py::arg("replace"), py::arg("threads"),
             py::arg("fused") = true)
        .def_property_readonly("scratch_bytes", &Sampler<Id>::scratch_bytes)
        .def("sample", &Sampler<Id>::sample, py::arg("batch_key"), py::arg("seeds").noconvert(), py::arg("transposed"),
             py::arg("positions"))
        .def("take_visits", &Sampler<Id>::take_visits, py::arg("counts").noconvert());
}

}  // namespace

void bind_sample(py::module_& m) {
    bind<int32_t>(m, "Sampler32");
    bind<int64_t>(m, "Sampler64");
}

}  // namespace graphmill
