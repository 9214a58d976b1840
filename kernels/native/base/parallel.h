// The one way to divide a loop among threads: dynamic pieces, and exceptions that reach the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>

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

// As parallel_for, and calls follow(begin, end) for every piece after its body: in ascending order, one at a time, by whichever
// thread is free, while the others go on. What follow does is therefore the same at any thread count.
template <class Body, class Follow>
void ordered_for(int64_t count, int64_t piece, int threads, Body body, Follow follow) {
    const int64_t pieces = count > 0 ? (count + piece - 1) / piece : 0;
    const auto done = std::make_unique<std::atomic<bool>[]>(pieces + 1);  // the last one is never done and ends the walk
    for (int64_t index = 0; index <= pieces; ++index) done[index] = false;
    std::atomic<bool> walking{false};
    std::atomic<int64_t> next{0};
    parallel_for(count, piece, threads, [&](int64_t begin, int64_t end) {
        // A team of one is given everything at once.
        for (int64_t first = begin; first < end; first += piece) {
            body(first, std::min(end, first + piece));
            done[first / piece] = true;
            // Who sets `done` and finds another walking may leave: the walker looks once more after it has stopped.
            while (done[next] && !walking.exchange(true)) {
                for (; done[next]; ++next) follow(next * piece, std::min(count, (next + 1) * piece));
                walking = false;
            }
        }
    });
}

}  // namespace graphmill
