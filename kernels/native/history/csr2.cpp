// Pruning of mini-batches in CSR2 form; see kernels/history/csr2.py.
//
// Two walks. The first goes from the seeds downwards: it marks the sources that remaining rows read, numbers them, and knows every size at
// its end. The second fills the compacted arrays, destinations side by side on all threads; each place is written once, so neither walk
// depends on the number of threads.
#include "history/history.h"

#include <cstring>
#include <string>

#include "base/input_error.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 1024;  // destinations that a thread takes at once

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

// What is returned of a block, and the places to write to of what comes from lists of any type.
struct Result {
    PrunedArrays arrays;
    Column src_ids, self_weight, by_edge[BY_EDGE];
};

Column made_column(Buffer<char>& buffer, const std::optional<Table>& given, int64_t before, int64_t size) {
    if (!given) return {};
    const int64_t bytes = given->type.bytes;
    if (given->dimensions != 1 || given->num_rows != before || (before > 1 && given->stride != bytes)) {
        refuse("an array of a block has another length than the block, or is not contiguous");
    }
    buffer = Buffer<char>(size * bytes);
    return {given->data, buffer.data(), bytes};
}

Result allocate(const Layer& layer, const BlockArrays& block) {
    Result result;
    PrunedArrays& arrays = result.arrays;
    arrays.start = Buffer<int32_t>(layer.num_kept);
    arrays.end = Buffer<int32_t>(layer.num_kept);
    arrays.indices = Buffer<int32_t>(layer.num_edges());
    if (!layer.first_are_own) arrays.dst_pos = Buffer<int32_t>(layer.num_kept);
    result.src_ids = made_column(arrays.src_ids, block.src_ids, layer.num_src, layer.num_used);
    result.self_weight = made_column(arrays.self_weight, block.self_weight, layer.num_dst, layer.num_kept);
    for (int c = 0; c < BY_EDGE; ++c) {
        result.by_edge[c] = made_column(arrays.by_edge[c], block.by_edge[c], layer.num_indices, layer.num_edges());
    }
    if (layer.num_hits) {
        arrays.computed = Buffer<int32_t>(layer.num_used - layer.num_hits);
        arrays.hist_pos = Buffer<int32_t>(layer.num_hits);
        arrays.hist_slot = Buffer<int32_t>(layer.num_hits);
    }
    return result;
}

void fill_rows(const Layer& layer, Result& result, int threads) {
    PrunedArrays& made = result.arrays;
    parallel_for(layer.num_kept, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
            const int32_t i = layer.kept[k], first = layer.start[i], count = layer.end[i] - first;
            const int32_t target = layer.new_end[k] - count;
            made.start[k] = target;
            made.end[k] = layer.new_end[k];
            if (!layer.first_are_own) made.dst_pos[k] = layer.place[layer.own(i)];
            for (int32_t e = 0; e < count; ++e) made.indices[target + e] = layer.place[layer.indices[first + e]];
            for (const Column& column : result.by_edge) column.copy(first, target, count);
            result.self_weight.copy(i, k, 1);
        }
    });
}

void fill_sources(const Layer& layer, Result& result, int32_t* origin) {
    PrunedArrays& made = result.arrays;
    int64_t hit = 0;
    for (int64_t s = 0; s < layer.num_src; ++s) {
        const int32_t place = layer.place[s];
        if (place < 0) continue;
        result.src_ids.copy_one(s, place);
        if (origin) origin[place] = static_cast<int32_t>(s);
        if (!layer.num_hits) continue;
        if (layer.slots[s] >= 0) {
            made.hist_pos[hit] = place;
            made.hist_slot[hit++] = layer.slots[s];
        } else {
            made.computed[place - hit] = place;
        }
    }
}

const int32_t* ints(const Optional<const int32_t>& given, int64_t size) {
    if (given && (given->dimensions() != 1 || given->size() != size)) refuse("an array of a block has another length than the block");
    return pointer(given);
}

Layer opened(const BlockArrays& block, const Optional<const int32_t>& slots) {
    Layer layer;
    layer.num_dst = block.num_dst;
    layer.num_src = block.num_src;
    layer.num_indices = block.indices.size();
    layer.start = ints(block.start, layer.num_dst);
    layer.end = ints(block.end, layer.num_dst);
    layer.indices = ints(block.indices, layer.num_indices);
    layer.dst_pos = ints(block.dst_pos, layer.num_dst);
    layer.slots = ints(slots, layer.num_src);
    if (!layer.dst_pos && layer.num_dst > layer.num_src) refuse("a block has more destinations than sources");
    return layer;
}

}  // namespace

std::pair<std::vector<PrunedArrays>, Buffer<int32_t>> prune(const std::vector<BlockArrays>& blocks,
                                                            const std::vector<Array<const int32_t>>& slots, int threads) {
    const int64_t count = static_cast<int64_t>(blocks.size());
    std::vector<Layer> layers;
    for (int64_t l = 0; l < count; ++l) layers.push_back(opened(blocks[l], l ? Optional<const int32_t>(slots[l - 1]) : std::nullopt));
    for (int64_t l = count - 1; l >= 0; --l) {
        keep_rows(layers[l], l + 1 < count ? &layers[l + 1] : nullptr);
        mark_sources(layers[l], threads);
        number_sources(layers[l]);
    }
    std::vector<PrunedArrays> pruned;
    Buffer<int32_t> origin(layers[0].num_used);
    for (int64_t l = 0; l < count; ++l) {
        Result result = allocate(layers[l], blocks[l]);
        fill_rows(layers[l], result, threads);
        fill_sources(layers[l], result, l ? nullptr : origin.data());
        pruned.push_back(std::move(result.arrays));
    }
    return {std::move(pruned), std::move(origin)};
}

void remove_in_edges(Array<const int32_t> start, Array<int32_t> end, Array<const int32_t> rows) {
    const int32_t *from = start.data(), *which = rows.data();
    int32_t* to = end.data();
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

}  // namespace graphmill
