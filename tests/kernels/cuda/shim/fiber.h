// A fiber: a stack of its own and the place where it stopped. Switching saves what a call must preserve, no more.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace shim {

constexpr size_t STACK_BYTES = 64 << 10, PAGE_BYTES = 4096;

#ifdef __x86_64__
extern "C" void shim_switch(void** save, void* load);
#endif

class Fiber {
  public:
    // Makes the fiber start with `entry`, which must never return.
    void start(char* stack, void (*entry)()) {
#ifdef __x86_64__
        void** top = reinterpret_cast<void**>(stack + STACK_BYTES) - 2;
        *top = reinterpret_cast<void*>(entry);  // the first switch returns to it; the word above keeps the alignment
        for (int i = 0; i < 6; ++i) *--top = nullptr;
        place_ = top;
#else
        getcontext(&place_);
        place_.uc_stack.ss_sp = stack;
        place_.uc_stack.ss_size = STACK_BYTES;
        makecontext(&place_, entry, 0);
#endif
    }
    // Leaves this fiber for another.
    void leave_for(Fiber& other) {
#ifdef __x86_64__
        shim_switch(&place_, other.place_);
#else
        swapcontext(&place_, &other.place_);
#endif
    }

  private:
#ifdef __x86_64__
    void* place_ = nullptr;
#else
    ucontext_t place_;
#endif
};

// Makes stacks for `count` fibers, STRIDE apart; below each is a page that must not be touched. Never freed. A process makes them once for all
// of its kernels: each stack takes two of the mappings that the system limits (vm.max_map_count, 65530).
constexpr size_t STRIDE = PAGE_BYTES + STACK_BYTES;

inline char* make_stacks(size_t count) {
    void* memory = mmap(nullptr, count * STRIDE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    char* stacks = static_cast<char*>(memory);
    for (size_t i = 0; i < count; ++i) {
        if (mprotect(stacks + i * STRIDE, PAGE_BYTES, PROT_NONE)) return nullptr;
    }
    return stacks + PAGE_BYTES;
}

}  // namespace shim
