// The choice of one row; see choose.h.
#include "sampling/choose.h"

#include <algorithm>
#include <cstring>

#include "base/rng.h"
#include "sampling/choose_wide.h"
#include "sampling/sampling.h"

namespace graphmill {
namespace {

constexpr int64_t SMALL = 64;

// Floyd's algorithm (Bentley and Floyd, A sample of brilliance, CACM 1987). The set is kept sorted: counting the
// members up to the draw is one vector loop and gives membership and place at once.
void floyd_sorted(uint64_t row_key, uint32_t degree, int64_t taken, uint32_t* out) {
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

}  // namespace

void Chooser::operator()(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
#ifdef GRAPHMILL_CHOOSE_WIDE
    if (taken <= WIDEST) return choose_wide(row_key, degree, taken, replace, out);
#endif
    anywhere(row_key, degree, taken, replace, out);
}

void Chooser::anywhere(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, uint32_t* out) {
    if (replace) {
        for (int64_t i = 0; i < taken; ++i) out[i] = static_cast<uint32_t>(bounded(draw(row_key, i), degree));
        std::sort(out, out + taken);
    } else if (taken <= SMALL) {
        floyd_sorted(row_key, degree, taken, out);
    } else {
        floyd_hashed(row_key, degree, taken, out);
    }
}

// The same choice as floyd_sorted with a table instead of a scan: O(taken) draws, then one sort.
void Chooser::floyd_hashed(uint64_t row_key, uint32_t degree, int64_t taken, uint32_t* out) {
    set_.clear(taken);
    for (int64_t i = 0; i < taken; ++i) {
        const uint32_t last = static_cast<uint32_t>(degree - taken + i);
        const uint32_t drawn = static_cast<uint32_t>(bounded(draw(row_key, i), uint64_t{last} + 1));
        out[i] = set_.insert(drawn) ? drawn : last;
        if (out[i] == last) set_.insert(last);
    }
    std::sort(out, out + taken);
}

Buffer<uint32_t> choose(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, bool anywhere) {
    Buffer<uint32_t> out(taken + Chooser::SPACE);
    Chooser chooser;
    if (anywhere) {
        chooser.anywhere(row_key, degree, taken, replace, out.data());
    } else {
        chooser(row_key, degree, taken, replace, out.data());
    }
    out.shrink(taken);
    return out;
}

}  // namespace graphmill
