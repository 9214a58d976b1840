// A map from pairs of a node and a time to their local ids in the batch at hand.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "base/zeroed_array.h"

namespace graphmill {

// Open addressing, at most half full. A slot of another batch has another stamp, so nothing is cleared between batches.
class PairMap {
  public:
    PairMap() { resize(FEWEST_BITS); }

    // Starts a new stamp, so that every slot is free.
    void begin_batch() {
        if (++stamp_ == 0) {
            std::memset(static_cast<void*>(slots_->data()), 0, num_bytes());
            stamp_ = 1;
        }
    }

    // Makes space for `more` pairs besides the named ones, pair_at(0 .. count - 1), whose local ids are their places.
    template <class PairAt>
    void reserve(int64_t more, int64_t count, PairAt pair_at) {
        if (2 * (count + more) <= size()) return;
        int bits = 64 - shift_;
        while (2 * (count + more) > int64_t{1} << bits) ++bits;
        resize(bits);
        for (int64_t i = 0; i < count; ++i) name(pair_at(i), static_cast<int32_t>(i));
    }

    void prefetch(uint64_t pair) const { __builtin_prefetch(slots_->data() + home(pair), 1); }

    // The local id of a pair, which is `next` for a new one. Whether it is new is not to be guessed, so there is no branch: the slot of an
    // old one is written again.
    int32_t name(uint64_t pair, int32_t next) {
        Slot* slots = slots_->data();
        for (uint64_t place = home(pair);; place = (place + 1) & mask_) {
            Slot& slot = slots[place];
            if (slot.stamp != stamp_) slot = {pair, stamp_, next};
            if (slot.pair == pair) return slot.local_id;
        }
    }

    int64_t num_bytes() const { return size() * static_cast<int64_t>(sizeof(Slot)); }

  private:
    struct Slot {
        uint64_t pair;
        uint32_t stamp;
        int32_t local_id;
    };
    static constexpr int FEWEST_BITS = 10;

    int64_t size() const { return static_cast<int64_t>(mask_) + 1; }

    void resize(int bits) {
        slots_ = std::make_unique<ZeroedArray<Slot>>(int64_t{1} << bits);
        mask_ = (uint64_t{1} << bits) - 1;
        shift_ = 64 - bits;
    }

    // The product's upper bits depend on all bits of the pair (Fibonacci hashing).
    uint64_t home(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u) >> shift_; }

    std::unique_ptr<ZeroedArray<Slot>> slots_;
    uint64_t mask_ = 0;
    int shift_ = 0;
    uint32_t stamp_ = 1;  // that of no slot
};

}  // namespace graphmill
