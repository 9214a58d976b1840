// A map from pairs of a node and a time to their local ids in the batch at hand.
#pragma once

#include <cstdint>
#include <vector>

namespace graphmill {

// Open addressing, at most half full. A slot of another batch has another stamp, so nothing is cleared between batches.
class PairMap {
  public:
    // Starts a new stamp, so that every slot is free.
    void begin_batch() {
        if (++stamp_ == 0) {
            slots_.assign(slots_.size(), Slot{});
            stamp_ = 1;
        }
    }

    // Makes space for `more` pairs besides the named ones, pairs[0 .. count), whose local ids are their places.
    void reserve(int64_t more, const std::vector<uint64_t>& pairs, int64_t count) {
        if (2 * (count + more) <= static_cast<int64_t>(slots_.size())) return;
        int bits = 64 - shift_;
        while (2 * (count + more) > int64_t{1} << bits) ++bits;
        slots_.assign(size_t{1} << bits, Slot{});
        shift_ = 64 - bits;
        for (int64_t i = 0; i < count; ++i) name(pairs[i], static_cast<int32_t>(i));
    }

    void prefetch(uint64_t pair) const { __builtin_prefetch(slots_.data() + home(pair), 1); }

    // The local id of a pair, which is `next` for a new one.
    int32_t name(uint64_t pair, int32_t next) {
        for (uint64_t place = home(pair);; place = (place + 1) & (slots_.size() - 1)) {
            Slot& slot = slots_[place];
            if (slot.stamp != stamp_) slot = {pair, stamp_, next};
            if (slot.pair == pair) return slot.local_id;
        }
    }

    int64_t num_bytes() const { return static_cast<int64_t>(slots_.size() * sizeof(Slot)); }

  private:
    struct Slot {
        uint64_t pair = 0;
        uint32_t stamp = 0;
        int32_t local_id = 0;
    };
    static constexpr int FEWEST_BITS = 10;

    // The product's upper bits depend on all bits of the pair (Fibonacci hashing).
    uint64_t home(uint64_t pair) const { return (pair * 0x9E3779B97F4A7C15u) >> shift_; }

    std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << FEWEST_BITS);
    int shift_ = 64 - FEWEST_BITS;
    uint32_t stamp_ = 0;
};

}  // namespace graphmill
