// One way to run a loop on several threads: dynamic pieces, and exceptions that reach the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>

namespace graphmill {

// Calls body(begin, end) for pieces that cover 0 .. count-1. An exception must not leave an OpenMP region, so the first
// one is kept and thrown again here. With one thread OpenMP is not entered at all, which keeps forked children safe.
template <class Body>
void parallel_for(int64_t count, int64_t piece, int threads, Body body) {
    if (count <= 0) return;
    const int64_t pieces = (count + piece - 1) / piece;
    const int team = static_cast<int>(std::min<int64_t>(threads, pieces));
    if (team <= 1) {
        body(int64_t{0}, count);
        return;
    }
    std::exception_ptr failure;
    std::atomic<bool> failed{false};
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
    for (int64_t index = 0; index < pieces; ++index) {
        if (failed.load(std::memory_order_relaxed)) continue;
        try {
            body(index * piece, std::min(count, (index + 1) * piece));
        } catch (...) {
            if (!failed.exchange(true)) failure = std::current_exception();
        }
    }
    if (failure) std::rethrow_exception(failure);
}

}  // namespace graphmill
