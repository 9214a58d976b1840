// Who enters the history of embeddings and who leaves it; see kernels/history/admit.py.
#include "history/history.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "base/input_error.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 4096;  // entries that a thread looks up at once
constexpr int32_t NONE = -1;     // and below it: marks of entries, -2 - entry

// Where embeddings are.
struct Index {
    int32_t* slot_of;
    int64_t *owner, *born;
    int64_t num_places, num_slots;
};

// All entries of an update.
struct Entries {
    const int64_t *where, *layer_ptr;
    const float *norms, *saved;
    const bool* computed;
    int64_t num_layers, count;
};

struct Done {
    Buffer<int32_t> entries, slots;
    Buffer<int64_t> admitted, evicted;
    int64_t overflow = 0;
};

// Ranks as an integer: the norm's bits, NaN as infinity, then the place. Bits of numbers of one sign are in the order of the numbers.
uint64_t rank_key(float norm, int64_t place) {
    if (!(norm >= 0)) norm = std::numeric_limits<float>::infinity();
    norm += 0.0f;  // -0 becomes 0
    uint32_t bits;
    std::memcpy(&bits, &norm, sizeof bits);
    return uint64_t{bits} << 32 | static_cast<uint64_t>(place);
}

// Sets stable[i] for the `keep` entries of a layer that have the smallest norms.
void mark_stable(const float* norms, int64_t count, int64_t keep, uint8_t* stable, int threads) {
    if (keep <= 0 || keep >= count) {
        std::memset(stable, keep > 0, count);
        return;
    }
    Buffer<uint64_t> keys(count), order(count);
    parallel_for(count, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) order[i] = keys[i] = rank_key(norms[i], i);
    });
    std::nth_element(order.data(), order.data() + keep - 1, order.data() + count);
    const uint64_t last = order[keep - 1];
    for (int64_t i = 0; i < count; ++i) stable[i] = keys[i] <= last;
}

// Reads every entry's slot before any is written.
Buffer<int32_t> slots_before(const Index& index, const Entries& entries, int threads) {
    Buffer<int32_t> before(entries.count);
    parallel_for(entries.count, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            if (static_cast<uint64_t>(entries.where[i]) >= static_cast<uint64_t>(index.num_places)) {
                throw InputError("entry " + std::to_string(i) + " names no node of the graph", "give ids of the graph's nodes");
            }
            before[i] = index.slot_of[entries.where[i]];
        }
    });
    return before;
}

// Takes what the history holds from unstable entries, and from those that were computed again.
void evict(const Index& index, const Entries& entries, const uint8_t* stable, const int32_t* before, int64_t* evicted) {
    for (int64_t layer = 0; layer < entries.num_layers; ++layer) {
        evicted[layer] = 0;
        for (int64_t i = entries.layer_ptr[layer]; i < entries.layer_ptr[layer + 1]; ++i) {
            if (before[i] < 0 || (stable[i] && !entries.computed[i])) continue;
            evicted[layer] += !entries.computed[i];
            index.owner[before[i]] = NONE;
            index.slot_of[entries.where[i]] = NONE;
        }
    }
}

std::vector<int32_t> candidates(const Entries& entries, const uint8_t* stable, float least) {
    std::vector<int32_t> found;
    found.reserve(entries.count);
    for (int64_t i = 0; i < entries.count; ++i) {
        if (stable[i] && entries.computed[i] && entries.saved[i] >= least) found.push_back(static_cast<int32_t>(i));
    }
    return found;
}

// Of the candidates of one node the last is left, and none where an entry of the node is unstable. The nodes' places in slot_of, which are
// empty, take marks meanwhile.
void drop_repeated(const Index& index, const Entries& entries, const uint8_t* stable, std::vector<int32_t>& found) {
    for (const int32_t i : found) index.slot_of[entries.where[i]] = -2 - i;
    for (int64_t i = 0; i < entries.count; ++i) {
        if (!stable[i]) index.slot_of[entries.where[i]] = NONE;
    }
    std::vector<int32_t> left;
    for (const int32_t i : found) {
        if (index.slot_of[entries.where[i]] == -2 - i) left.push_back(i);
    }
    for (const int32_t i : found) index.slot_of[entries.where[i]] = NONE;
    found.swap(left);
}

// Leaves as many as there are slots: those that save most, ties by place.
void choose(const Entries& entries, int64_t num_slots, std::vector<int32_t>& found) {
    if (static_cast<int64_t>(found.size()) <= num_slots) return;
    const auto saves_more = [&](int32_t a, int32_t b) {
        return entries.saved[a] != entries.saved[b] ? entries.saved[a] > entries.saved[b] : a < b;
    };
    std::nth_element(found.begin(), found.begin() + num_slots, found.end(), saves_more);
    found.resize(num_slots);
    std::sort(found.begin(), found.end());
}

// Slots that may be taken: `count` of a list, or all of a ring from its head on.
struct Taken {
    const int32_t* list;
    int64_t count, head;
};

void write(const Index& index, const Entries& entries, const std::vector<int32_t>& found, const Taken& taken, int64_t now, Done& done) {
    const auto count = static_cast<int64_t>(found.size());
    done.entries = Buffer<int32_t>(count);
    done.slots = Buffer<int32_t>(count);
    int64_t layer = 0;
    for (int64_t k = 0; k < count; ++k) {
        int64_t slot = taken.list ? taken.list[k] : taken.head + k;
        if (slot >= index.num_slots) slot -= index.num_slots;
        done.entries[k] = found[k];
        done.slots[k] = static_cast<int32_t>(slot);
        if (index.owner[slot] >= 0) index.slot_of[index.owner[slot]] = NONE;
        index.owner[slot] = entries.where[found[k]];
        index.born[slot] = now;
        while (found[k] >= entries.layer_ptr[layer + 1]) ++layer;
        ++done.admitted[layer];
    }
    for (int64_t k = 0; k < count; ++k) index.slot_of[entries.where[found[k]]] = done.slots[k];
}

Done update(const Index& index, const Entries& entries, const std::vector<int64_t>& keep, float least, const Taken& taken, int64_t now,
            bool repeated, int threads) {
    Done done{{}, {}, Buffer<int64_t>(entries.num_layers), Buffer<int64_t>(entries.num_layers)};
    std::fill_n(done.admitted.data(), entries.num_layers, int64_t{0});
    Buffer<uint8_t> stable(entries.count);
    for (int64_t layer = 0; layer < entries.num_layers; ++layer) {
        const int64_t first = entries.layer_ptr[layer], count = entries.layer_ptr[layer + 1] - first;
        mark_stable(entries.norms + first, count, keep[layer], stable.data() + first, threads);
    }
    const Buffer<int32_t> before = slots_before(index, entries, threads);
    evict(index, entries, stable.data(), before.data(), done.evicted.data());
    std::vector<int32_t> found = candidates(entries, stable.data(), least);
    if (repeated) drop_repeated(index, entries, stable.data(), found);
    const auto wanted = static_cast<int64_t>(found.size());
    choose(entries, taken.count, found);
    done.overflow = wanted - static_cast<int64_t>(found.size());
    write(index, entries, found, taken, now, done);
    return done;
}

}  // namespace

Admitted admit(Array<int32_t> slot_of, Array<int64_t> owner, Array<int64_t> born, Array<const int64_t> where,
               Array<const int64_t> layer_ptr, Array<const float> norms, Array<const float> saved, Array<const bool> computed,
               const std::vector<int64_t>& keep, float least, int64_t head, Optional<const int32_t> free, int64_t now, bool repeated,
               int threads) {
    const Index index{slot_of.data(), owner.data(), born.data(), slot_of.size(), owner.size()};
    const Entries entries{where.data(), layer_ptr.data(), norms.data(), saved.data(), computed.data(), layer_ptr.size() - 1, where.size()};
    if (norms.size() != entries.count || saved.size() != entries.count || computed.size() != entries.count ||
        layer_ptr.data()[entries.num_layers] != entries.count || static_cast<int64_t>(keep.size()) != entries.num_layers) {
        throw InputError("the entries' arrays differ in length", "give one norm, one saved access and one flag per entry");
    }
    const Taken taken{pointer(free), free ? free->size() : index.num_slots, head};
    for (int64_t k = 0; taken.list && k < taken.count; ++k) {
        if (static_cast<uint64_t>(taken.list[k]) >= static_cast<uint64_t>(index.num_slots)) {
            throw InputError("slot " + std::to_string(taken.list[k]) + " is none of " + std::to_string(index.num_slots), "give slots");
        }
    }
    Done done = update(index, entries, keep, least, taken, now, repeated, threads);
    return {std::move(done.entries), std::move(done.slots), std::move(done.admitted), std::move(done.evicted), done.overflow};
}

// Slots of nodes, -1 where `now` may not use them.
template <class Id>
void look_up(Array<const int32_t> slot_of, int64_t first, int64_t num_nodes, Array<const int64_t> born, Array<const Id> ids, int64_t now,
             int64_t t_stale, Array<int32_t> out, int threads) {
    const int32_t* of_layer = slot_of.data() + first;
    const int64_t* steps = born.data();
    const Id* nodes = ids.data();
    int32_t* to = out.data();
    const int64_t count = ids.size();
    parallel_for(count, PIECE, threads, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            if (static_cast<uint64_t>(nodes[i]) >= static_cast<uint64_t>(num_nodes)) {
                throw InputError("node " + std::to_string(nodes[i]) + " is none of " + std::to_string(num_nodes), "give global ids");
            }
            const int32_t slot = of_layer[nodes[i]];
            const int64_t age = slot < 0 ? 0 : now - steps[slot];
            to[i] = age > 0 && age <= t_stale ? slot : NONE;
        }
    });
}

template decltype(look_up<int32_t>) look_up<int32_t>;
template decltype(look_up<int64_t>) look_up<int64_t>;

}  // namespace graphmill
