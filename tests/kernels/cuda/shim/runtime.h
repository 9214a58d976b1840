// What the kernel's side of the shim calls; see __init__.py. Threads are fibers: one runs at a time, without locks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shim {

struct Index {
    unsigned x, y, z;
};

enum class Op { SYNC, SHUFFLE, BALLOT, MATCH, ADD, MIN, MAX, AND, OR, XOR };

Index thread_index();
Index block_index();
Index block_dim();
Index grid_dim();
int lane();
unsigned active_mask();
void* dynamic_shared();

// All threads of the block meet here; returns the sum of their values.
int barrier(int line, int value);

// The lanes of `mask` meet here. Returns what the operation gives to this lane; a shuffle reads lane `source`.
uint64_t collective(Op op, unsigned mask, uint64_t value, int source, int line);

// Checks and notes an access of `bytes` bytes by the running thread, and may let another thread run first.
enum class Kind { READ, WRITE, ATOMIC };
void access(const void* address, size_t bytes, Kind kind, const void* pc);

}  // namespace shim
