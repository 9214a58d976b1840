// Pruning of mini-batches in CSR2 form; see kernels/history/csr2.py.
//
// Two walks. The first goes from the seeds downwards: it marks the sources that remaining rows read, numbers them, and knows every size at
// its end. The second fills the compacted arrays, destinations side by side on all threads; each place is written once, so neither walk
// depends on the number of threads.
#include <cstring>
#include <vector>

#include "base/arrays.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 1024;  // destinations that a thread takes at once
constexpr int BY_EDGE = 4;        // weight, edge_type, edge_id, share
constexpr int ARRAYS = 9 + BY_EDGE;

[[noreturn]] void refuse(const char* what) { throw InputError(what, "give the blocks of one sampled mini-batch"); }

// A block before, and what is left of it.
struct Layer {
    int64_t num_dst, num_src, num_indices;
    const int32_t *start, *end, *indices, *dst_pos, *slots;  // slots: of the sources in the history, null for the lowest block
    Buffer<int32_t> kept, new_end;   // destinations that are left, and their row ends
    Buffer<int32_t> place;           // new number of every source, -1 for one that is gone
    int64_t num_kept = 0, num_used = 0, num_hits = 0;
    bool first_are_own = true;       // the destinations are the first sources that are left

    int32_t own(int64_t i) const { return dst_pos ? dst_pos[i] : static_cast<int32_t>(i); }
    int64_t num_edges() const { return num_kept ? new_end[num_kept - 1] : 0; }
};

// Lists the destinations that are needed: all of the top block, those that the block above computes of another.
void keep_rows(Layer& layer, const Layer* above) {
    layer.kept = Buffer<int32_t>(layer.num_dst);
    layer.new_end = Buffer<int32_t>(layer.num_dst);
    int64_t kept = 0, edges = 0;
    for (int64_t i = 0; i < layer.num_dst; ++i) {
        const int32_t low = layer.start[i], high = layer.end[i];
        if ((low < 0) | (low > high) | (high > layer.num_indices)) refuse("a block's start and end are not ranges of its indices");
        const bool needed = !above || (above->place[i] >= 0 && above->slots[i] < 0);
        layer.kept[kept] = static_cast<int32_t>(i);
        layer.new_end[kept] = static_cast<int32_t>(edges + high - low);
        kept += needed;
        edges += needed ? high - low : 0;
    }
    layer.num_kept = kept;
}

// Several threads may mark one source, with the same value.
void mark(int32_t* place, int32_t source) { __atomic_store_n(place + source, 0, __ATOMIC_RELAXED); }

void mark_sources(Layer& layer, int threads) {
    layer.place = Buffer<int32_t>(layer.num_src);
    int32_t* place = layer.place.data();
    std::memset(place, 0xFF, layer.num_src * sizeof(int32_t));
    const auto num_src = static_cast<uint32_t>(layer.num_src);
    parallel_for(layer.num_kept, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
            const int32_t i = layer.kept[k], own = layer.own(i);
            if (static_cast<uint32_t>(own) >= num_src) refuse("a destination of a block is none of its sources");
            mark(place, own);
            for (int32_t e = layer.start[i]; e < layer.end[i]; ++e) {
                if (static_cast<uint32_t>(layer.indices[e]) >= num_src) refuse("a block has a local source id that is out of range");
                mark(place, layer.indices[e]);
            }
        }
    });
}

void number_sources(Layer& layer) {
    int32_t used = 0;
    int64_t hits = 0;
    for (int64_t s = 0; s < layer.num_src; ++s) {
        const bool marked = layer.place[s] == 0;
        layer.place[s] = marked ? used : -1;
        used += marked;
        hits += marked && layer.slots && layer.slots[s] >= 0;
    }
    layer.num_used = used;
    layer.num_hits = hits;
    for (int64_t k = 0; k < layer.num_kept && layer.first_are_own; ++k) {
        layer.first_are_own = layer.place[layer.own(layer.kept[k])] == k;
    }
}

// Elements of one size that move with their edge, their destination or their source.
struct Column {
    const char* from = nullptr;
    char* to = nullptr;
    int64_t size = 0;

    void copy(int64_t from_place, int64_t to_place, int64_t count) const {
        if (from) std::memcpy(to + to_place * size, from + from_place * size, count * size);
    }
    void copy_one(int64_t from_place, int64_t to_place) const {
        if (size == 4) std::memcpy(to + to_place * 4, from + from_place * 4, 4);
        else if (from) std::memcpy(to + to_place * size, from + from_place * size, size);
    }
};

// What is returned of a block, as arrays of Python and as places to write to.
struct Result {
    py::tuple arrays;
    int32_t *start = nullptr, *end = nullptr, *indices = nullptr, *dst_pos = nullptr;
    int32_t *computed = nullptr, *hist_pos = nullptr, *hist_slot = nullptr;
    Column src_ids, self_weight, by_edge[BY_EDGE];
};

int32_t* made(py::object& slot, int64_t size) {
    py::array_t<int32_t> array(size);
    slot = array;
    return array.mutable_data();
}

Column made_column(py::object& slot, const py::object& given, int64_t before, int64_t size) {
    if (given.is_none()) return {};
    const auto array = given.cast<py::array>();
    if (array.ndim() != 1 || array.shape(0) != before || !(array.flags() & py::array::c_style)) {
        refuse("an array of a block has another length than the block, or is not contiguous");
    }
    py::array target(array.dtype(), size);
    slot = target;
    return {static_cast<const char*>(array.data()), static_cast<char*>(target.mutable_data()), array.itemsize()};
}

Result allocate(const Layer& layer, const py::object& src_ids, const py::object& self_weight, const py::tuple& by_edge) {
    Result result;
    py::object slots[ARRAYS];
    for (auto& slot : slots) slot = py::none();
    result.start = made(slots[0], layer.num_kept);
    result.end = made(slots[1], layer.num_kept);
    result.indices = made(slots[2], layer.num_edges());
    result.src_ids = made_column(slots[3], src_ids, layer.num_src, layer.num_used);
    if (!layer.first_are_own) result.dst_pos = made(slots[4], layer.num_kept);
    result.self_weight = made_column(slots[5], self_weight, layer.num_dst, layer.num_kept);
    for (int c = 0; c < BY_EDGE; ++c) result.by_edge[c] = made_column(slots[6 + c], by_edge[c], layer.num_indices, layer.num_edges());
    if (layer.num_hits) {
        result.computed = made(slots[ARRAYS - 3], layer.num_used - layer.num_hits);
        result.hist_pos = made(slots[ARRAYS - 2], layer.num_hits);
        result.hist_slot = made(slots[ARRAYS - 1], layer.num_hits);
    }
    result.arrays = py::tuple(ARRAYS);
    for (int k = 0; k < ARRAYS; ++k) result.arrays[k] = slots[k];
    return result;
}

void fill_rows(const Layer& layer, const Result& result, int threads) {
    parallel_for(layer.num_kept, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
            const int32_t i = layer.kept[k], first = layer.start[i], count = layer.end[i] - first;
            const int32_t target = layer.new_end[k] - count;
            result.start[k] = target;
            result.end[k] = layer.new_end[k];
            if (result.dst_pos) result.dst_pos[k] = layer.place[layer.own(i)];
            for (int32_t e = 0; e < count; ++e) result.indices[target + e] = layer.place[layer.indices[first + e]];
            for (const Column& column : result.by_edge) column.copy(first, target, count);
            result.self_weight.copy(i, k, 1);
        }
    });
}

void fill_sources(const Layer& layer, const Result& result, int32_t* origin) {
    int64_t hit = 0;
    for (int64_t s = 0; s < layer.num_src; ++s) {
        const int32_t place = layer.place[s];
        if (place < 0) continue;
        result.src_ids.copy_one(s, place);
        if (origin) origin[place] = static_cast<int32_t>(s);
        if (!result.computed) continue;
        if (layer.slots[s] >= 0) {
            result.hist_pos[hit] = place;
            result.hist_slot[hit++] = layer.slots[s];
        } else {
            result.computed[place - hit] = place;
        }
    }
}

const int32_t* ints(const py::object& given, int64_t size) {
    if (given.is_none()) return nullptr;
    if (!py::isinstance<Array<int32_t>>(given)) refuse("an array of a block is not contiguous int32");
    const auto array = given.cast<Array<int32_t>>();
    if (array.ndim() != 1 || array.size() != size) refuse("an array of a block has another length than the block");
    return array.data();
}

// A block is (num_dst, num_src, start, end, indices, dst_pos, src_ids, self_weight, (weight, edge_type, edge_id, share)).
Layer opened(const py::tuple& block, const py::object& slots) {
    Layer layer;
    layer.num_dst = block[0].cast<int64_t>();
    layer.num_src = block[1].cast<int64_t>();
    layer.num_indices = static_cast<int64_t>(py::len(block[4]));
    layer.start = ints(block[2], layer.num_dst);
    layer.end = ints(block[3], layer.num_dst);
    layer.indices = ints(block[4], layer.num_indices);
    layer.dst_pos = ints(block[5], layer.num_dst);
    layer.slots = ints(slots, layer.num_src);
    if (!layer.dst_pos && layer.num_dst > layer.num_src) refuse("a block has more destinations than sources");
    return layer;
}

py::tuple prune(py::list blocks, py::list slots, int threads) {
    const int64_t count = static_cast<int64_t>(blocks.size());
    std::vector<Layer> layers;
    for (int64_t l = 0; l < count; ++l) layers.push_back(opened(blocks[l], l ? py::object(slots[l - 1]) : py::none()));
    {
        py::gil_scoped_release unlocked;
        for (int64_t l = count - 1; l >= 0; --l) {
            keep_rows(layers[l], l + 1 < count ? &layers[l + 1] : nullptr);
            mark_sources(layers[l], threads);
            number_sources(layers[l]);
        }
    }
    std::vector<Result> results;
    for (int64_t l = 0; l < count; ++l) {
        const py::tuple block = blocks[l];
        results.push_back(allocate(layers[l], block[6], block[7], block[8]));
    }
    py::array_t<int32_t> origin(layers[0].num_used);
    int32_t* places = origin.mutable_data();
    {
        py::gil_scoped_release unlocked;
        for (int64_t l = 0; l < count; ++l) {
            fill_rows(layers[l], results[l], threads);
            fill_sources(layers[l], results[l], l ? nullptr : places);
        }
    }
    py::list arrays;
    for (const Result& result : results) arrays.append(result.arrays);
    return py::make_tuple(arrays, origin);
}

void remove_in_edges(Array<int32_t> start, py::array_t<int32_t, py::array::c_style> end, Array<int32_t> rows) {
    const int32_t *from = start.data(), *which = rows.data();
    int32_t* to = end.mutable_data();
    const int64_t count = rows.size();
    const auto num_dst = static_cast<uint32_t>(start.size());
    for (int64_t k = 0; k < count; ++k) {
        if (static_cast<uint32_t>(which[k]) >= num_dst) {
            throw InputError("row " + std::to_string(which[k]) + " is none of " + std::to_string(num_dst) + " destinations",
                             "give places among the block's destinations");
        }
    }
    for (int64_t k = 0; k < count; ++k) to[which[k]] = from[which[k]];
}

}  // namespace

void bind_csr2(py::module_& m) {
    m.def("prune", &prune, py::arg("blocks"), py::arg("slots"), py::arg("threads"));
    m.def("remove_in_edges", &remove_in_edges, py::arg("start").noconvert(), py::arg("end").noconvert(), py::arg("rows").noconvert());
}

}  // namespace graphmill
