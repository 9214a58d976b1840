// Fused neighbour sampling: FastSample, section 3.2, Algorithm 1. kernels/sample.py tells the idea and states the rule.

#include <atomic>
#include <cstring>
#include <vector>

#include "choose.h"
#include "layer.h"
#include "parallel.h"
#include "rows.h"
#include "seats.h"
#include "two_step.h"

namespace graphmill {

// Which blocks get a transpose: those above the first need one to pass gradients on.
enum class Transposed { None = 0, Hidden = 1, All = 2 };

template <class Id>
class Sampler {
  public:
    Sampler(Array<int64_t> indptr, Array<Id> indices, std::vector<int64_t> fanouts, bool replace, int threads,
            bool fused)
        : topology_(indptr, indices), seats_(topology_.num_nodes()), fanouts_(std::move(fanouts)), replace_(replace),
          threads_(threads), fused_(fused) {
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
            parallel_for(count_, 1 << 16, threads_, [&](int64_t begin, int64_t end) {
                std::memcpy(src_ids.data() + begin, nodes_.data() + begin, (end - begin) * sizeof(Id));
            });
        }
        py::list blocks;
        for (Layer& layer : layers) blocks.append(layer.release());
        return py::make_tuple(src_ids.release(), blocks);
    }

    // What stays allocated between batches; pages of the map that were never touched are counted too.
    int64_t scratch_bytes() const {
        return seats_.num_bytes() + (nodes_.size() + picked_.size()) * sizeof(Id);
    }

    // Adds the visits since the last call to `counts`, and forgets them.
    void take_visits(Array<uint32_t> counts) {
        uint32_t* out = counts.mutable_data();
        py::gil_scoped_release unlocked;
        seats_.take_visits(out);
    }

  private:
    static constexpr int64_t LAG = 16;    // rows between two steps: their reads are in flight together
    static constexpr int64_t SHORTEST = 128, LONGEST = 1024;  // rows that one thread takes: a pipeline is filled for each piece
    static constexpr int64_t AHEAD = 24;  // edges between the prefetch of a node's entry and its use
    static constexpr int64_t NEAR = 64;   // edges of a row that are prefetched a step ahead
    static constexpr int64_t LINE = 64 / sizeof(Id);

    // Starts a new stamp, so that every entry of the map is stale, and gives the seeds the first local ids. The front door has
    // checked that they are in range.
    void seat_seeds(const Id* seeds, int64_t num_seeds) {
        if (num_seeds >= LOCAL_IDS) throw InputError("a batch has 2147483647 seeds or more", SMALLER);
        seats_.begin_batch();
        nodes_.grow(num_seeds);
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
        const int64_t num_edges = size_rows(topology_, nodes_.data(), fanout, threads_, layer);
        layer.indices = Buffer<int32_t>(num_edges);
        if (positions) layer.position = Buffer<int64_t>(num_edges);
        if constexpr (sizeof(Id) != sizeof(int32_t)) picked_.grow(num_edges);
        nodes_.grow(std::min(count_ + num_edges, topology_.num_nodes()) + 1);
        const int64_t piece = std::clamp(layer.num_dst / (8 * threads_), SHORTEST, LONGEST);
        if (threads_ == 1 || layer.num_dst <= piece) {
            pick_rows<true>(layer, 0, layer.num_dst);
        } else {
            ordered_for(layer.num_dst, piece, threads_,
                        [&](int64_t begin, int64_t end) { pick_rows<false>(layer, begin, end); },
                        [&](int64_t begin, int64_t end) { relabel<0>(layer, layer.start[begin], layer.end[end - 1]); });
        }
        if (count_ > LOCAL_IDS) throw InputError("a block would have more than 2147483647 sources", SMALLER);
        layer.num_src = count_;
        return layer;
    }

    // The ablation: see kernels/two_step.py.
    Layer sample_in_two_steps(uint64_t layer_key, int64_t fanout, bool positions) {
        Layer layer;
        layer.num_dst = count_;
        auto edges = sample_edges(topology_.indptr(), topology_.indices(), nodes_.data(), count_, fanout, replace_ && fanout >= 0, layer_key,
                                  positions, threads_);
        nodes_.grow(std::min(count_ + edges.src.size(), topology_.num_nodes()) + 1);
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

    // Of destination i. Reading it again, from a near cache, is cheaper than keeping it: 16 bytes a destination.
    Row row_of(int64_t i) const { return topology_.row(nodes_[i]); }

    // Three steps a row, each LAG rows behind the one before, so that what it reads is on its way: choose positions, read the
    // ids there, rename them. Misses of one row overlap the arithmetic of others. If not NAMING, renaming is left to ordered_for.
    template <bool NAMING>
    void pick_rows(Layer& layer, int64_t begin, int64_t end) {
        std::vector<uint32_t> chosen[LAG];
        Chooser choose;
        for (int64_t i = begin; i < end + 2 * LAG; ++i) {
            const int64_t read = i - LAG, named = read - LAG;
            if (read >= begin && read < end) read_row<NAMING>(layer, read, chosen[read % LAG].data());
            if (i + LAG < end) topology_.prefetch(nodes_[i + LAG]);
            if (i < end) choose_row(layer, i, choose, chosen[i % LAG]);
            if (NAMING && named >= begin && named < end) relabel<NEAR>(layer, layer.start[named], layer.end[named]);
        }
    }

    // Whether a row is taken as it is, without choosing.
    static bool whole(const Layer& layer, int64_t taken, const Row& row) { return !layer.replace && taken == row.degree; }

    void choose_row(const Layer& layer, int64_t i, Chooser& choose, std::vector<uint32_t>& chosen) {
        const int64_t taken = layer.end[i] - layer.start[i];
        const Row lies = row_of(i);
        const Id* row = topology_.indices() + lies.begin;
        if (whole(layer, taken, lies)) {
            for (int64_t j = 0; j < std::min(taken, NEAR); j += LINE) __builtin_prefetch(row + j);
            if (taken > 0) __builtin_prefetch(row + std::min(taken, NEAR) - 1);
            return;
        }
        if (chosen.size() < static_cast<size_t>(taken + Chooser::ROOM)) chosen.resize(taken + Chooser::ROOM);
        choose(absorb(layer.key, nodes_[i]), static_cast<uint32_t>(lies.degree), taken, layer.replace,
               chosen.data());
        for (int64_t j = 0; j < taken; ++j) __builtin_prefetch(row + chosen[j]);
    }

    // Global ids of the layer's edges until they are renamed: in place where an id is as wide as a local one.
    Id* picked(Layer& layer) {
        if constexpr (sizeof(Id) == sizeof(int32_t)) {
            return layer.indices.data();
        } else {
            return picked_.data();
        }
    }

    template <bool NAMING>
    void read_row(Layer& layer, int64_t i, const uint32_t* chosen) {
        const int64_t taken = layer.end[i] - layer.start[i];
        const Row row = row_of(i);
        const Id* ids = topology_.indices() + row.begin;
        Id* out = picked(layer) + layer.start[i];
        const bool all = whole(layer, taken, row);
        Id largest = 0, smallest = 0;
        for (int64_t j = 0; j < taken; ++j) {
            const Id node = ids[all ? j : chosen[j]];
            out[j] = node;
            largest = std::max(largest, node);
            smallest = std::min(smallest, node);
        }
        if (smallest < 0 || largest >= topology_.num_nodes()) topology_.refuse(smallest < 0 ? smallest : largest);
        if (NAMING) {
            for (int64_t j = 0; j < std::min(taken, NEAR); ++j) seats_.prefetch(out[j]);
        }
        if (layer.position.data()) {
            int64_t* position = layer.position.data() + layer.start[i];
            for (int64_t j = 0; j < taken; ++j) position[j] = row.begin + (all ? j : chosen[j]);
        }
    }

    static void turn(Layer& layer) {
        layer.transpose = build_transpose(layer.num_dst, layer.num_src, layer.start.data(), layer.end.data(),
                                          layer.indices.data());
    }

    // The second loop of Algorithm 1, over edges first .. last-1. It is called in edge order, so new sources have the same order
    // for any team. Whether a node is new is not to be guessed, so there is no branch: an old one is written again.
    // Entries from number READY on are prefetched here; who calls has asked for those before.
    template <int64_t READY>
    void relabel(Layer& layer, int64_t first, int64_t last) {
        const Id* ids = picked(layer);
        int32_t* local_ids = layer.indices.data();
        const Seats seats = seats_.view();
        Id* nodes = nodes_.data();
        uint64_t count = count_;
        for (int64_t e = first; e < last; ++e) {
            if (READY == 0 || e + AHEAD >= first + READY) {
                if (e + AHEAD < last) seats.prefetch(ids[e + AHEAD]);
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

    Rows<Id> topology_;
    SeatMap seats_;
    std::vector<int64_t> fanouts_;
    bool replace_;
    int threads_;
    bool fused_;
    std::atomic<bool> busy_{false};
    int64_t count_ = 0;   // nodes seated in this batch
    Buffer<Id> nodes_;    // their global ids; every block's sources are a prefix of it
    Buffer<Id> picked_;   // global ids of one layer's edges, where they do not fit into its indices
};

template <class Id>
static void bind(py::module_& m, const char* name) {
    py::class_<Sampler<Id>>(m, name)
        .def(py::init<Array<int64_t>, Array<Id>, std::vector<int64_t>, bool, int, bool>(), py::arg("indptr").noconvert(),
             py::arg("indices").noconvert(), py::arg("fanouts"), py::arg("replace"), py::arg("threads"),
             py::arg("fused") = true)
        .def_property_readonly("scratch_bytes", &Sampler<Id>::scratch_bytes)
        .def("sample", &Sampler<Id>::sample, py::arg("batch_key"), py::arg("seeds").noconvert(), py::arg("transposed"),
             py::arg("positions"))
        .def("take_visits", &Sampler<Id>::take_visits, py::arg("counts").noconvert());
}

void bind_sample(py::module_& m) {
    bind<int32_t>(m, "Sampler32");
    bind<int64_t>(m, "Sampler64");
}

}  // namespace graphmill
