// Which positions of a row a destination takes: uniform, ascending, a pure function of the row's key.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/rng.h"
#include "sampling/choose_wide.h"
#include "sampling/position_set.h"

namespace graphmill {

// Number of edges that are taken from a row; a fanout of -1 takes all.
inline int64_t num_taken(int64_t degree, int64_t fanout, bool replace) {
    if (fanout < 0 || degree == 0) return degree;
    return replace ? fanout : std::min(degree, fanout);
}

class Chooser {
  public:
    static constexpr int64_t SPACE = 32;  // entries behind the chosen ones that may be overwritten

    // Writes `taken` ascending positions in 0 .. degree-1. Without replacement taken must not exceed degree.
    void operator()(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
#ifdef GRAPHMILL_CHOOSE_WIDE
        if (taken <= WIDEST) return choose_wide(row_key, degree, taken, replace, out);
#endif
        anywhere(row_key, degree, taken, replace, out);
    }

    // The same without vector instructions of one processor, and for any number.
    void anywhere(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
        if (replace) {
            for (int64_t i = 0; i < taken; ++i) out[i] = static_cast<uint32_t>(bounded(draw(row_key, i), degree));
            std::sort(out, out + taken);
        } else if (taken <= SMALL) {
            floyd_sorted(row_key, degree, taken, out);
        } else {
            floyd_hashed(row_key, degree, taken, out);
        }
    }

  private:
    static constexpr int64_t SMALL = 64;

    // Floyd's algorithm (Bentley and Floyd, A sample of brilliance, CACM 1987). The set is kept sorted: counting the
    // members up to the draw is one vector loop and gives membership and place at once.
    static void floyd_sorted(uint64_t row_key, uint32_t degree, int64_t taken, uint32_t* out) {
        for (int64_t i = 0; i < taken; ++i) {
            const uint32_t last = static_cast<uint32_t>(degree - taken + i);
            const uint32_t drawn = static_cast<uint32_t>(bounded(draw(row_key, i), uint64_t{last} + 1));
            uint32_t below = 0;
            for (int64_t j = 0; j < i; ++j) below += out[j] <= drawn;
            if (below > 0 && out[below - 1] == drawn) {
                out[i] = last;  // every earlier choice is smaller
                continue;
            }
            std::memmove(out + below + 1, out + below, (i - below) * sizeof(uint32_t));
            out[below] = drawn;
        }
    }

    // The same choice with a table instead of a scan: O(taken) draws, then one sort.
    void floyd_hashed(uint64_t row_key, uint32_t degree, int64_t taken, uint32_t* out) {
        set_.clear(taken);
        for (int64_t i = 0; i < taken; ++i) {
            const uint32_t last = static_cast<uint32_t>(degree - taken + i);
            const uint32_t drawn = static_cast<uint32_t>(bounded(draw(row_key, i), uint64_t{last} + 1));
            out[i] = set_.insert(drawn) ? drawn : last;
            if (out[i] == last) set_.insert(last);
        }
        std::sort(out, out + taken);
    }

    PositionSet set_;
};

}  // namespace graphmill
