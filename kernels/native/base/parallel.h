// The one way to divide a loop among threads: dynamic pieces, and exceptions that reach the caller.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace graphmill {

// Whether this process is a fork of one that had loaded the kernels. OpenMP keeps the threads of a loop for the next one; a fork inherits
// the list of these threads, but not the threads, and would wait for them for ever. It is written between fork() and its return, while
// the child has one thread.
inline bool is_forked = false;
inline const int registered = pthread_atfork(nullptr, nullptr, [] { is_forked = true; });

// Calls work() at the same time on `team` threads, of which this one is the first and the others are started for this call. work must not
// throw, and must be correct on fewer threads: those that the system refuses are left out.
template <class Work>
void on_new_threads(int team, const Work& work) {
    std::vector<std::thread> others;
    others.reserve(team - 1);
    try {
        while (static_cast<int>(others.size()) < team - 1) others.emplace_back(std::cref(work));
    } catch (const std::system_error&) {
        // The threads that there are take its pieces.
    }
    work();
    for (std::thread& other : others) other.join();
}

// Calls body(begin, end) for pieces that cover 0 .. count-1. An exception must not leave an OpenMP region, so the first one is kept and
// thrown again here. One thread alone does not enter OpenMP, and a forked process never does.
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
    std::atomic<int64_t> next{0};
    const auto work = [&] {
        for (int64_t index; (index = next.fetch_add(1, std::memory_order_relaxed)) < pieces && !failed.load(std::memory_order_relaxed);) {
            try {
                body(index * piece, std::min(count, (index + 1) * piece));
            } catch (...) {
                if (!failed.exchange(true)) failure = std::current_exception();
            }
        }
    };
    if (is_forked) {
        on_new_threads(team, work);
    } else {
#pragma omp parallel num_threads(team)
        work();
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
