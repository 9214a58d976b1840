// The direct map from nodes to their local ids in the batch at hand. It is never cleared: an entry of another batch has another stamp.
#pragma once

#include <cstdint>
#include <vector>

#include "base/zeroed_array.h"

namespace graphmill {

// An entry is the stamp of the batch << 48 | visits << 32 | local id. It is changed through this view, which stays in registers.
struct LocalIds {
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
    uint64_t named(uint64_t entry, int64_t local_id) const {
        return stamp | ((entry + ONE_VISIT) & VISITS) | static_cast<uint64_t>(local_id);
    }
};

// Owns the entries, and keeps the visits when the stamps begin anew.
class LocalIdMap {
  public:
    explicit LocalIdMap(int64_t num_nodes) : num_nodes_(num_nodes), entries_(num_nodes + 1), local_ids_{entries_.data(), 0} {}

    LocalIds view() const { return local_ids_; }
    template <class Id>
    uint64_t& entry(Id node) { return local_ids_.entry(node); }
    template <class Id>
    void prefetch(Id node) const { local_ids_.prefetch(node); }
    bool has_name(uint64_t entry) const { return local_ids_.has_name(entry); }
    uint64_t named(uint64_t entry, int64_t local_id) const { return local_ids_.named(entry, local_id); }
    static int32_t local_id(uint64_t entry) { return LocalIds::local_id(entry); }

    // Starts a new stamp, so that every entry is stale.
    void begin_batch() {
        local_ids_.stamp += FIRST;
        if (local_ids_.stamp == 0) {  // after 2^16 batches old stamps would look new, and the entries' counts are full
            spill_visits();
            local_ids_.stamp = FIRST;
        }
    }

    // Adds the visits since the last call to counts[num_nodes], and forgets them.
    void take_visits(uint32_t* counts) {
        for (int64_t v = 0; v < num_nodes_; ++v) {
            const uint64_t entry = entries_[v];
            if (entry & LocalIds::VISITS) {
                counts[v] += static_cast<uint32_t>((entry & LocalIds::VISITS) >> 32);
                entries_[v] = entry & ~LocalIds::VISITS;
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
            spilled_[v] += static_cast<uint32_t>((entries_[v] & LocalIds::VISITS) >> 32);
            entries_[v] = 0;
        }
    }

    int64_t num_nodes_;
    ZeroedArray<uint64_t> entries_;
    LocalIds local_ids_;
    std::vector<uint32_t> spilled_;  // visits that the entries had no space for; empty before 2^16 batches
};

}  // namespace graphmill
