// Fused neighbour sampling: FastSample, section 3.2, Algorithm 1. kernels/sample.py tells the idea and states the rule.

#include <atomic>
#include <cstring>
#include <limits>
#include <vector>

#include "choose.h"
#include "parallel.h"
#include "transpose.h"

namespace graphmill {

struct Layer {
    int64_t num_dst = 0, num_src = 0;
    bool replace = false;
    Buffer<int32_t> start, end, indices;
    Buffer<int64_t> position;  // of each edge in the topology
    Transpose transpose;
};

// Which blocks get a transpose: those above the first need one to pass gradients on.
enum class Transposed { None = 0, Hidden = 1, All = 2 };

template <class Id>
class Sampler {
  public:
    Sampler(Array<int64_t> indptr, Array<Id> indices, std::vector<int64_t> fanouts, bool replace, int threads)
        : keep_indptr_(indptr), keep_indices_(indices), indptr_(indptr.data()), indices_(indices.data()),
          num_nodes_(indptr.size() - 1), fanouts_(std::move(fanouts)), replace_(replace), threads_(threads) {
        py::gil_scoped_release unlocked;
        check_topology(indices.size());
        // Zeroed by the system, page by page, when a node is first touched.
        seen_ = static_cast<uint64_t*>(std::calloc(num_nodes_ + 1, sizeof(uint64_t)));
        if (!seen_) throw std::bad_alloc();
    }
    ~Sampler() { std::free(seen_); }
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

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
                layers[block] = sample_layer(absorb(batch_key, block), fanout, positions);
                if (transposed == int(Transposed::All) || (transposed == int(Transposed::Hidden) && block > 0)) {
                    turn(layers[block]);
                }
            }
            src_ids = Buffer<Id>(count_);
            std::memcpy(src_ids.data(), nodes_.data(), count_ * sizeof(Id));
        }
        return hand_over(layers, src_ids);
    }

    // Adds the visits since the last call to `counts`, and forgets them.
    void take_visits(Array<uint32_t> counts) {
        uint32_t* out = counts.mutable_data();
        py::gil_scoped_release unlocked;
        for (int64_t v = 0; v < num_nodes_; ++v) {
            const uint64_t entry = seen_[v];
            if (entry & VISITS) {
                out[v] += static_cast<uint32_t>((entry & VISITS) >> 32);
                seen_[v] = entry & ~VISITS;
            }
        }
        for (size_t v = 0; v < spilled_.size(); ++v) out[v] += spilled_[v];
        spilled_.clear();
    }

  private:
    struct Row {
        int64_t begin;
        uint32_t degree;
    };
    static constexpr int64_t LOCAL_IDS = std::numeric_limits<int32_t>::max();
    static constexpr const char* SMALLER = "use a smaller batch size or smaller fanouts";
    static constexpr uint64_t ONE_VISIT = uint64_t{1} << 32, VISITS = uint64_t{0xFFFF} << 32;
    static constexpr int64_t TILE = 16;   // rows whose reads are in flight together
    static constexpr int64_t AHEAD = 24;  // edges between the prefetch of a node's entry and its use

    void check_topology(int64_t num_edges) {
        if (num_nodes_ < 0 || indptr_[0] != 0 || indptr_[num_nodes_] != num_edges) {
            throw InputError("indptr does not run from 0 to the " + std::to_string(num_edges) + " entries of indices",
                             "rebuild the graph with build_csc");
        }
        for (int64_t v = 0; v < num_nodes_; ++v) {
            const int64_t degree = indptr_[v + 1] - indptr_[v];
            if (degree < 0 || degree > LOCAL_IDS) {
                throw InputError("node " + std::to_string(v) + " has the row length " + std::to_string(degree) +
                                     "; it must be in 0..2147483647", "rebuild the graph with build_csc");
            }
        }
    }

    // The front door has checked that the seeds are in range.
    // Starts a new stamp, so that every entry of the map is stale, and gives the seeds the first local ids.
    void seat_seeds(const Id* seeds, int64_t num_seeds) {
        if (num_seeds >= LOCAL_IDS) throw InputError("a batch has 2147483647 seeds or more", SMALLER);
        if (++stamp_ == 0) {  // after 2^16 batches old stamps would look new, and the entries' counts are full
            spill_visits();
            stamp_ = 1;
        }
        nodes_.grow(num_seeds);
        for (int64_t i = 0; i < num_seeds; ++i) {
            uint64_t& entry = seen_[seeds[i]];
            if (entry >> 48 == stamp_) {
                throw InputError("seed " + std::to_string(seeds[i]) + " stands at positions " +
                                     std::to_string(uint32_t(entry)) + " and " + std::to_string(i),
                                 "give every seed once");
            }
            entry = seated(entry, i);
            nodes_[i] = seeds[i];
        }
        count_ = num_seeds;
    }

    // The entry of a node that gets a seat in this batch: the batch's stamp, one visit more, and its local id. A batch adds one to the
    // stamp and at most one to a count, so a count is full no earlier than the stamps are used up.
    uint64_t seated(uint64_t entry, int64_t local_id) const {
        return uint64_t{stamp_} << 48 | ((entry + ONE_VISIT) & VISITS) | uint64_t(local_id);
    }

    // Clears the map; the visits that were counted in it move to a table of wide counters.
    void spill_visits() {
        spilled_.resize(num_nodes_);
        for (int64_t v = 0; v < num_nodes_; ++v) {
            spilled_[v] += static_cast<uint32_t>((seen_[v] & VISITS) >> 32);
            seen_[v] = 0;
        }
    }

    // The nodes seated so far are the destinations; the rows picked for them seat the sources that are new.
    Layer sample_layer(uint64_t layer_key, int64_t fanout, bool positions) {
        Layer layer;
        layer.num_dst = count_;
        layer.replace = replace_ && fanout >= 0;  // all neighbours are all, once
        const int64_t num_edges = size_rows(layer, fanout);
        layer.indices = Buffer<int32_t>(num_edges);
        if (positions) layer.position = Buffer<int64_t>(num_edges);
        picked_.grow(num_edges);
        parallel_for(layer.num_dst, 4 * TILE, threads_,
                     [&](int64_t begin, int64_t end) { pick_rows(layer, layer_key, begin, end); });
        relabel(layer.indices.data(), num_edges);
        layer.num_src = count_;
        return layer;
    }

    // Reads where each row lies and how much of it is taken; start and end follow by a running sum.
    int64_t size_rows(Layer& layer, int64_t fanout) {
        layer.start = Buffer<int32_t>(layer.num_dst);
        layer.end = Buffer<int32_t>(layer.num_dst);
        rows_.grow(layer.num_dst);
        int64_t total = 0;
        for (int64_t i = 0; i < layer.num_dst; ++i) {
            if (i + AHEAD < layer.num_dst) __builtin_prefetch(indptr_ + nodes_[i + AHEAD]);
            const int64_t begin = indptr_[nodes_[i]], degree = indptr_[nodes_[i] + 1] - begin;
            rows_[i] = {begin, static_cast<uint32_t>(degree)};
            layer.start[i] = static_cast<int32_t>(total);
            total += num_taken(degree, fanout, layer.replace);
            if (total > LOCAL_IDS) throw InputError("a block would have more than 2147483647 edges", SMALLER);
            layer.end[i] = static_cast<int32_t>(total);
        }
        return total;
    }

    // Chooses TILE rows first and reads them afterwards, so that their cache misses overlap.
    void pick_rows(Layer& layer, uint64_t layer_key, int64_t begin, int64_t end) {
        std::vector<uint32_t> chosen;
        Chooser choose;
        for (int64_t tile = begin; tile < end; tile += TILE) {
            const int64_t tile_end = std::min(end, tile + TILE);
            const int32_t base = layer.start[tile];
            for (int64_t i = tile; i < tile_end; ++i) {
                const int64_t taken = layer.end[i] - layer.start[i];
                const Id* row = indices_ + rows_[i].begin;
                if (whole(layer, i)) {
                    __builtin_prefetch(row);
                    continue;
                }
                chosen.resize(std::max<size_t>(chosen.size(), layer.end[i] - base));
                uint32_t* place = chosen.data() + (layer.start[i] - base);
                choose(absorb(layer_key, nodes_[i]), rows_[i].degree, taken, layer.replace, place);
                for (int64_t j = 0; j < taken; ++j) __builtin_prefetch(row + place[j]);
            }
            for (int64_t i = tile; i < tile_end; ++i) copy_row(layer, i, chosen.data() + (layer.start[i] - base));
        }
    }

    bool whole(const Layer& layer, int64_t i) const {
        return !layer.replace && layer.end[i] - layer.start[i] == static_cast<int64_t>(rows_[i].degree);
    }

    void copy_row(Layer& layer, int64_t i, const uint32_t* chosen) {
        const int64_t taken = layer.end[i] - layer.start[i], begin = rows_[i].begin;
        Id* out = picked_.data() + layer.start[i];
        const bool all = whole(layer, i);
        if (all) {
            std::memcpy(out, indices_ + begin, taken * sizeof(Id));
        } else {
            for (int64_t j = 0; j < taken; ++j) out[j] = indices_[begin + chosen[j]];
        }
        if (layer.position.data()) {
            int64_t* position = layer.position.data() + layer.start[i];
            for (int64_t j = 0; j < taken; ++j) position[j] = begin + (all ? j : chosen[j]);
        }
    }

    static void turn(Layer& layer) {
        layer.transpose = build_transpose(layer.num_dst, layer.num_src, layer.start.data(), layer.end.data(),
                                          layer.indices.data());
    }

    // The second loop of Algorithm 1. It runs in edge order, so the order of the new sources is the same for any team.
    void relabel(int32_t* local_ids, int64_t num_edges) {
        const Id* picked = picked_.data();
        nodes_.grow(std::min(count_ + num_edges, num_nodes_));
        for (int64_t e = 0; e < num_edges; ++e) {
            if (e + AHEAD < num_edges) __builtin_prefetch(seen_ + picked[e + AHEAD], 1);
            const Id node = picked[e];
            if (static_cast<uint64_t>(node) >= static_cast<uint64_t>(num_nodes_)) {
                throw InputError("the graph has an edge from node " + std::to_string(node) + ", but only " +
                                     std::to_string(num_nodes_) + " nodes",
                                 "run graphmill verify on the graph, then build it again");
            }
            uint64_t entry = seen_[node];
            if (entry >> 48 != stamp_) {
                if (count_ == LOCAL_IDS) throw InputError("a block would have 2147483648 sources", SMALLER);
                entry = seated(entry, count_);
                seen_[node] = entry;
                nodes_[count_++] = node;
            }
            local_ids[e] = static_cast<int32_t>(static_cast<uint32_t>(entry));
        }
    }

    static py::tuple hand_over(std::vector<Layer>& layers, Buffer<Id>& src_ids) {
        py::list blocks;
        for (Layer& layer : layers) {
            Transpose& turned = layer.transpose;
            blocks.append(py::make_tuple(layer.num_dst, layer.num_src, layer.start.release(), layer.end.release(),
                                         layer.indices.release(), layer.position.release(), turned.start.release(),
                                         turned.edge.release(), turned.dst.release()));
        }
        return py::make_tuple(src_ids.release(), blocks);
    }

    Array<int64_t> keep_indptr_;
    Array<Id> keep_indices_;
    const int64_t* indptr_;
    const Id* indices_;
    int64_t num_nodes_;
    std::vector<int64_t> fanouts_;
    bool replace_;
    int threads_;
    std::atomic<bool> busy_{false};
    uint64_t* seen_ = nullptr;  // [num_nodes]: stamp of the batch << 48 | visits << 32 | local id
    uint16_t stamp_ = 0;
    std::vector<uint32_t> spilled_;  // [num_nodes] visits that the map had no room for; empty before 2^16 batches
    int64_t count_ = 0;   // nodes seated in this batch
    Buffer<Id> nodes_;    // their global ids; every block's sources are a prefix of it
    Buffer<Row> rows_;
    Buffer<Id> picked_;   // global ids of one layer's edges
};

template <class Id>
static void bind(py::module_& m, const char* name) {
    py::class_<Sampler<Id>>(m, name)
        .def(py::init<Array<int64_t>, Array<Id>, std::vector<int64_t>, bool, int>(), py::arg("indptr").noconvert(),
             py::arg("indices").noconvert(), py::arg("fanouts"), py::arg("replace"), py::arg("threads"))
        .def("sample", &Sampler<Id>::sample, py::arg("batch_key"), py::arg("seeds").noconvert(), py::arg("transposed"),
             py::arg("positions"))
        .def("take_visits", &Sampler<Id>::take_visits, py::arg("counts").noconvert());
}

void bind_sample(py::module_& m) {
    bind<int32_t>(m, "Sampler32");
    bind<int64_t>(m, "Sampler64");
}

}  // namespace graphmill
