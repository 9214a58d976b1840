// One block of threads: who runs, who waits for what, and what is known about the order of their accesses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fiber.h"
#include "runtime.h"

namespace shim {

constexpr int LANES = 32;
constexpr unsigned MAX_THREADS = 1024;

enum class State : uint8_t { READY, AT_BARRIER, AT_COLLECTIVE, RETURNED };

struct Thread {
    Fiber fiber;
    char* stack;
    State state;
    Op op;
    unsigned mask;
    int line, source, number;  // number: in its block
    uint64_t value, result;
    Index index;
    uint32_t known[LANES];  // what this warp's lanes did before these times comes before what this thread does now
};

// Time counts the meetings of threads; an access carries the time at which it was made.
struct Block {
    Index grid, dim, index;
    uint32_t number, num_threads, num_returned, num_at_barrier;
    uint32_t time, start_time, barrier_time;
    int barrier_line, barrier_sum, barrier_result;
    uint64_t random;
    bool checked;
    std::vector<Thread> threads;
    std::vector<int> ready;
    Thread* running;
    std::string error;
    const void* error_pc;

    // Whether an access by a thread of this block at a time comes before what the running thread does now.
    bool before(int thread, uint32_t at) const {
        if (at < barrier_time || thread == running->number) return true;
        return thread / LANES == running->number / LANES && at < running->known[thread % LANES];
    }
};

extern Block block;

// SplitMix64.
inline uint64_t next_random() {
    uint64_t z = block.random += 0x9E3779B97F4A7C15ull;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ z >> 27) * 0x94D049BB133111EBull;
    return z ^ z >> 31;
}

// Lets another thread that can run go first, by chance this one again.
void yield();

// Ends the launch with a message; does not return.
[[noreturn]] void fail(const std::string& message, const void* pc = nullptr);

// "thread (3,0,0) of block (1,0,0)"
std::string name_of(int thread, uint32_t block_number);

}  // namespace shim
