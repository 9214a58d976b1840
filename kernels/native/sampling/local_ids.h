// Maps from nodes to their local ids in the batch at hand, in two sizes: an entry for every node of the graph, or slots for the nodes of
// a batch. Both name the same nodes in the same order, so a block's bytes do not depend on the map. kernels/sampling/sample.py tells
// which is taken when.
//
// Renaming goes through a view, which stays in registers: `entry` finds the place of a node, `has_name` and `local_id` read it, `named`
// makes its new content. A view is good until the next call of `begin_batch` or `reserve`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/input_error.h"
#include "base/zeroed_array.h"
#include "sampling/topology.h"

namespace graphmill {

// An entry is the stamp of the batch << 48 | visits << 32 | local id.
struct DirectIds {
    static constexpr uint64_t ONE_VISIT = uint64_t{1} << 32, VISITS = uint64_t{0xFFFF} << 32;

    uint64_t* entries;
    uint64_t stamp;  // of the batch, in the place where entries have it

    template <class Id>
    uint64_t& entry(Id node) const { return entries[node]; }
    template <class Id>
    void prefetch(Id node) const { __builtin_prefetch(entries + node, 1); }

    // Whether the node has a local id in this batch: stamps grow.
    bool has_name(uint64_t entry) const { return entry >= stamp; }
    static int32_t local_id(uint64_t entry) { return static_cast<int32_t>(static_cast<uint32_t>(entry)); }

    // The entry of a node that gets a local id: the batch's stamp, one visit more, and its local id. A batch adds one to the stamp
    // and at most one to a count, so a count is full no earlier than the stamps are used up.
    template <class Id>
    uint64_t named(uint64_t entry, Id, int64_t local_id) const {
        return stamp | ((entry + ONE_VISIT) & VISITS) | static_cast<uint64_t>(local_id);
    }
};

// An entry for every node. It is never cleared: an entry of another batch has another stamp. Keeps the visits when the stamps begin anew.
class DirectMap {
  public:
    static constexpr bool COUNTS_VISITS = true;

    explicit DirectMap(int64_t num_nodes) : num_nodes_(num_nodes), entries_(num_nodes + 1), view_{entries_.data(), 0} {}

    DirectIds view() const { return view_; }

    // Starts a new stamp, so that every entry is stale.
    void begin_batch() {
        view_.stamp += FIRST;
        if (view_.stamp == 0) {  // after 2^16 batches old stamps would look new, and the entries' counts are full
            spill_visits();
            view_.stamp = FIRST;
        }
    }

    template <class Id>
    void reserve(int64_t, const Id*, int64_t) {}  // there is an entry for every node

    // Adds the visits since the last call to counts[num_nodes], and forgets them.
    void take_visits(uint32_t* counts) {
        for (int64_t v = 0; v < num_nodes_; ++v) {
            const uint64_t entry = entries_[v];
            if (entry & DirectIds::VISITS) {
                counts[v] += static_cast<uint32_t>((entry & DirectIds::VISITS) >> 32);
                entries_[v] = entry & ~DirectIds::VISITS;
            }
        }
        for (size_t v = 0; v < spilled_.size(); ++v) counts[v] += spilled_[v];
        spilled_.clear();
    }

    // Parts that were never touched are counted too.
    int64_t num_bytes() const { return (num_nodes_ + 1) * sizeof(uint64_t) + spilled_.capacity() * sizeof(uint32_t); }

  private:
    static constexpr uint64_t FIRST = uint64_t{1} << 48;

    void spill_visits() {
        spilled_.resize(num_nodes_);
        for (int64_t v = 0; v < num_nodes_; ++v) {
            spilled_[v] += static_cast<uint32_t>((entries_[v] & DirectIds::VISITS) >> 32);
            entries_[v] = 0;
        }
    }

    int64_t num_nodes_;
    ZeroedArray<uint64_t> entries_;
    DirectIds view_;
    std::vector<uint32_t> spilled_;  // visits that the entries had no space for; empty before 2^16 batches
};

// A slot is (node + 1) << 31 | local id, or 0 if it is free. Local ids have 31 bits, which leaves 33 for nodes.
struct HashedIds {
    static constexpr int LOCAL_BITS = 31;
    static constexpr uint64_t LOCAL = (uint64_t{1} << LOCAL_BITS) - 1;

    uint64_t* slots;
    uint64_t mask;  // number of slots - 1
    int shift;      // 64 - log2 of the number of slots

    // The product's upper bits depend on all bits of the node (Fibonacci hashing), so neighbouring ids are spread.
    template <class Id>
    uint64_t home(Id node) const { return (static_cast<uint64_t>(node) * 0x9E3779B97F4A7C15u) >> shift; }

    // The node's slot, or the free one that it would get: the next ones are tried in order. Half of the slots are free, so one is found.
    template <class Id>
    uint64_t& entry(Id node) const {
        const uint64_t wanted = static_cast<uint64_t>(node) + 1;
        uint64_t place = home(node);
        while (slots[place] != 0 && slots[place] >> LOCAL_BITS != wanted) place = (place + 1) & mask;
        return slots[place];
    }
    template <class Id>
    void prefetch(Id node) const { __builtin_prefetch(slots + home(node), 1); }

    bool has_name(uint64_t entry) const { return entry != 0; }
    static int32_t local_id(uint64_t entry) { return static_cast<int32_t>(entry & LOCAL); }

    template <class Id>
    uint64_t named(uint64_t, Id node, int64_t local_id) const {
        return (static_cast<uint64_t>(node) + 1) << LOCAL_BITS | static_cast<uint64_t>(local_id);
    }
};

// Slots for the nodes of the largest batch so far, cleared before each batch: 16 to 32 bytes for each of its nodes, whatever the graph.
class HashedMap {
  public:
    static constexpr bool COUNTS_VISITS = false;

    explicit HashedMap(int64_t num_nodes) : num_nodes_(num_nodes) { resize(FEWEST_BITS); }

    const HashedIds& view() const { return view_; }

    void begin_batch() { std::memset(slots_->data(), 0, num_bytes()); }

    // Makes space for `more` nodes besides the named ones, nodes[0 .. count).
    template <class Id>
    void reserve(int64_t more, const Id* nodes, int64_t count) {
        if (__builtin_expect(count + more > capacity_, 0)) grow(std::min(count + more, num_nodes_), nodes, count);
    }

    void take_visits(uint32_t*) {}

    int64_t num_bytes() const { return 2 * capacity_ * static_cast<int64_t>(sizeof(uint64_t)); }

  private:
    static constexpr int FEWEST_BITS = 12;
    static constexpr int64_t AHEAD = 24;

    template <class Id>
    void grow(int64_t needed, const Id* nodes, int64_t count) {
        int bits = 64 - view_.shift;
        while (needed > int64_t{1} << (bits - 1)) ++bits;
        if (bits == 64 - view_.shift) return;
        resize(bits);
        // The old slots are not read: the list of nodes knows their names.
        for (int64_t i = 0; i < count; ++i) {
            if (i + AHEAD < count) view_.prefetch(nodes[i + AHEAD]);
            uint64_t& slot = view_.entry(nodes[i]);
            slot = view_.named(slot, nodes[i], i);
        }
    }

    void resize(int bits) {
        slots_ = std::make_unique<ZeroedArray<uint64_t>>(int64_t{1} << bits);
        capacity_ = int64_t{1} << (bits - 1);
        view_ = {slots_->data(), (uint64_t{1} << bits) - 1, 64 - bits};
    }

    int64_t num_nodes_, capacity_ = 0;  // most nodes that may have names: half of the slots
    std::unique_ptr<ZeroedArray<uint64_t>> slots_;
    HashedIds view_{};
};

[[noreturn]] inline void refuse_repeated(int64_t seed, int64_t first, int64_t second) {
    throw InputError("seed " + std::to_string(seed) + " stands at positions " + std::to_string(first) + " and " + std::to_string(second),
                     "give every seed once");
}

// The local ids of the nodes of a batch, in the order in which they come: the second loop of Algorithm 1 (FastSample).
template <class Id, class Map>
class Naming {
  public:
    static constexpr int64_t AHEAD = 24;  // edges between the prefetch of a node's entry and its use

    explicit Naming(int64_t num_nodes) : local_ids_(num_nodes), nodes_(num_nodes + 1) {}

    // Starts a new stamp, so that every entry of the map is stale, and gives the seeds the first local ids. The front door has
    // checked that they are in range.
    void name_seeds(const Id* seeds, int64_t num_seeds) {
        if (num_seeds >= LOCAL_IDS) throw InputError("a batch has 2147483647 seeds or more", SMALLER);
        local_ids_.begin_batch();
        local_ids_.reserve(num_seeds, nodes_.data(), 0);
        const auto names = local_ids_.view();
        for (int64_t i = 0; i < num_seeds; ++i) {
            uint64_t& entry = names.entry(seeds[i]);
            if (names.has_name(entry)) refuse_repeated(seeds[i], names.local_id(entry), i);
            entry = names.named(entry, seeds[i], i);
            nodes_[i] = seeds[i];
        }
        count_ = num_seeds;
    }

    // It is called in edge order, so new sources have the same order for any team. Entries from number READY on are prefetched here; who
    // calls has asked for those before.
    template <int64_t READY>
    void relabel(const Id* ids, int64_t num_edges, int32_t* local_ids) {
        const int64_t first = std::min(num_edges, NAMED_AT_ONCE);
        relabel_some<READY>(ids, first, local_ids);
        for (int64_t e = first; e < num_edges; e += NAMED_AT_ONCE) {
            relabel_some<0>(ids + e, std::min(num_edges - e, NAMED_AT_ONCE), local_ids + e);
        }
    }

    // Throws InputError if a block has more sources than local ids can name.
    void require_local_ids() const {
        if (count_ > LOCAL_IDS) throw InputError("a block would have more than 2147483647 sources", SMALLER);
    }

  protected:
    Map local_ids_;
    int64_t count_ = 0;      // nodes that have a local id in this batch
    ZeroedArray<Id> nodes_;  // their global ids; every block's sources are a prefix of it. It never moves: other threads read it

  private:
    static constexpr int64_t NAMED_AT_ONCE = 1 << 14;  // edges between two looks at whether the map has space

    // Whether a node is new is not to be guessed, so there is no branch: an old one is written again.
    template <int64_t READY>
    void relabel_some(const Id* ids, int64_t num_edges, int32_t* local_ids) {
        local_ids_.reserve(num_edges, nodes_.data(), count_);
        const auto names = local_ids_.view();
        Id* nodes = nodes_.data();
        uint64_t count = count_;
        for (int64_t e = 0; e < num_edges; ++e) {
            if (READY == 0 || e + AHEAD >= READY) {
                if (e + AHEAD < num_edges) names.prefetch(ids[e + AHEAD]);
            }
            const Id node = ids[e];
            uint64_t& entry = names.entry(node);
            const bool known = names.has_name(entry);
            const uint64_t now = known ? entry : names.named(entry, node, static_cast<int64_t>(count));
            entry = now;
            nodes[count] = node;
            count += !known;
            local_ids[e] = names.local_id(now);
        }
        count_ = static_cast<int64_t>(count);
    }
};

}  // namespace graphmill
