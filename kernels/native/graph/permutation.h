// A keyed bijection of 0 .. count-1, in both directions, without tables, on the host and on devices.
#pragma once

#include "base/rng.h"

namespace graphmill {

// Three rounds of a multiplication by an odd number and a shifted xor are a bijection of the next power of two; values
// beyond the range are sent round again (cycle walking), fewer than two rounds in the mean.
class Permutation {
  public:
    GRAPHMILL_INLINE Permutation(uint64_t key, uint64_t count, bool active) : count_(count), active_(active) {
        int bits = 1;
        while (bits < 63 && (uint64_t{1} << bits) < count) ++bits;
        mask_ = (uint64_t{1} << bits) - 1;
        shift_ = (bits + 1) / 2;
        for (int round = 0; round < ROUNDS; ++round) {
            factor_[round] = draw(key, 2 * round) | 1;
            offset_[round] = draw(key, 2 * round + 1);
            uint64_t inverse = factor_[round];  // Newton: the number of right low bits doubles
            for (int step = 0; step < 6; ++step) inverse *= 2 - factor_[round] * inverse;
            inverse_[round] = inverse;
        }
    }

    GRAPHMILL_INLINE uint64_t forward(uint64_t x) const {
        if (!active_) return x;
        do {
            for (int round = 0; round < ROUNDS; ++round) {
                x = (x * factor_[round] + offset_[round]) & mask_;
                x ^= x >> shift_;
            }
        } while (x >= count_);
        return x;
    }

    GRAPHMILL_INLINE uint64_t backward(uint64_t x) const {
        if (!active_) return x;
        do {
            for (int round = ROUNDS - 1; round >= 0; --round) {
                x ^= x >> shift_;  // its own inverse: the shift is at least half the bits
                x = ((x - offset_[round]) * inverse_[round]) & mask_;
            }
        } while (x >= count_);
        return x;
    }

  private:
    static constexpr int ROUNDS = 3;
    uint64_t factor_[ROUNDS], offset_[ROUNDS], inverse_[ROUNDS];
    uint64_t mask_ = 0, count_;
    int shift_ = 1;
    bool active_;
};

}  // namespace graphmill
