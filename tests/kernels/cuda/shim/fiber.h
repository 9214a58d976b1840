// A fiber: a stack of its own and the place where it stopped. Switching saves what a call must preserve, no more.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

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

// Stacks that are used again from block to block; below each is a page that must not be touched.
class Stacks {
  public:
    void reserve(size_t count) {
        while (stacks_.size() < count) {
            void* memory = mmap(nullptr, PAGE_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (memory == MAP_FAILED) throw std::bad_alloc();
            mprotect(memory, PAGE_BYTES, PROT_NONE);
            stacks_.push_back(static_cast<char*>(memory) + PAGE_BYTES);
        }
    }
    char* operator[](size_t index) { return stacks_[index]; }

  private:
    std::vector<char*> stacks_;
};

}  // namespace shim
