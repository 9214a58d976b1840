// Runs the threads of a block as fibers, in an order drawn from a seed, and lets them meet.
#include <algorithm>

#include "block.h"
#include "memory.h"

#ifdef __x86_64__
asm(R"(
.text
.globl shim_switch
.hidden shim_switch
shim_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
#endif

namespace shim {

Block block;
static Fiber scheduler;
static char* stacks;
static void (*kernel_entry)(void**);
static void** kernel_arguments;
static std::vector<char> dynamic_memory;

static std::string text(const Index& i) {
    return "(" + std::to_string(i.x) + "," + std::to_string(i.y) + "," + std::to_string(i.z) + ")";
}

static Index unfold(uint32_t number, const Index& dim) {
    return {number % dim.x, number / dim.x % dim.y, number / dim.x / dim.y};
}

std::string name_of(int thread, uint32_t block_number) {
    return "thread " + text(unfold(thread, block.dim)) + " of block " + text(unfold(block_number, block.grid));
}

void fail(const std::string& message, const void* pc) {
    block.error = message;
    block.error_pc = pc;
    block.running->fiber.leave_for(scheduler);
    __builtin_unreachable();
}

void yield() {
    block.ready.push_back(block.running->number);
    block.running->fiber.leave_for(scheduler);
}

static void wait(State state) {
    block.running->state = state;
    block.running->fiber.leave_for(scheduler);
}

static void release(Thread& thread) {
    thread.state = State::READY;
    block.ready.push_back(thread.number);
}

Index thread_index() { return block.running->index; }
Index block_index() { return block.index; }
Index block_dim() { return block.dim; }
Index grid_dim() { return block.grid; }
int lane() { return block.running->number % LANES; }
void* dynamic_shared() { return dynamic_memory.data(); }

// The threads of the running thread's warp, as a range of numbers.
static int warp_begin(int number) { return number / LANES * LANES; }
static int warp_end(int number) { return std::min<int>(warp_begin(number) + LANES, block.num_threads); }

unsigned active_mask() {
    unsigned mask = 0;
    for (int t = warp_begin(block.running->number); t < warp_end(block.running->number); ++t) {
        if (block.threads[t].state != State::RETURNED) mask |= 1u << t % LANES;
    }
    return mask;
}

int barrier(int line, int value) {
    Thread* self = block.running;
    if (block.num_returned) {
        fail("divergent barrier: " + name_of(self->number, block.number) + " waits at line " + std::to_string(line) +
             ", " + std::to_string(block.num_returned) + " threads of its block have returned");
    }
    if (block.num_at_barrier && block.barrier_line != line) {
        fail("divergent barrier: " + name_of(self->number, block.number) + " waits at line " + std::to_string(line) +
             ", others of its block at line " + std::to_string(block.barrier_line));
    }
    block.barrier_line = line;
    block.barrier_sum += value;
    if (++block.num_at_barrier < block.num_threads) {
        wait(State::AT_BARRIER);
        return block.barrier_result;
    }
    block.barrier_result = block.barrier_sum;
    block.barrier_sum = block.num_at_barrier = 0;
    block.barrier_time = ++block.time;
    for (Thread& thread : block.threads) {
        if (thread.state == State::AT_BARRIER) release(thread);
    }
    yield();
    return block.barrier_result;
}

static uint64_t reduced(Op op, uint64_t a, uint64_t b) {
    const int64_t x = static_cast<int64_t>(a), y = static_cast<int64_t>(b);
    switch (op) {
        case Op::ADD: return a + b;
        case Op::MIN: return x < y ? a : b;
        case Op::MAX: return x > y ? a : b;
        case Op::AND: return a & b;
        case Op::OR: return a | b;
        default: return a ^ b;
    }
}

static void give_result(Thread& thread, const std::vector<Thread*>& members, unsigned present) {
    uint64_t bits = 0, folded = members[0]->value;
    for (const Thread* other : members) {
        const bool counts = thread.op == Op::MATCH ? other->value == thread.value : other->value != 0;
        if (counts) bits |= 1u << other->number % LANES;
        if (other != members[0]) folded = reduced(thread.op, folded, other->value);
    }
    if (thread.op == Op::SHUFFLE) {
        if (thread.source >= LANES || !(present >> thread.source & 1)) {
            fail(name_of(thread.number, block.number) + " reads lane " + std::to_string(thread.source) + " at line " +
                 std::to_string(thread.line) + ", which takes no part in the shuffle");
        }
        thread.result = block.threads[warp_begin(thread.number) + thread.source].value;
    } else {
        thread.result = thread.op == Op::BALLOT || thread.op == Op::MATCH ? bits : folded;
    }
}

// __syncwarp also orders memory: each lane now knows what the others knew, and everything they did.
static void order_accesses(const std::vector<Thread*>& members) {
    uint32_t known[LANES] = {};
    const uint32_t now = ++block.time;
    for (const Thread* thread : members) {
        for (int l = 0; l < LANES; ++l) known[l] = std::max(known[l], thread->known[l]);
    }
    for (const Thread* thread : members) known[thread->number % LANES] = now;
    for (Thread* thread : members) std::copy(known, known + LANES, thread->known);
}

// Lets the lanes of a meeting go on when all of them are there. Lanes that have returned are not waited for.
static bool complete(Thread* self) {
    std::vector<Thread*> members;
    unsigned present = 0;
    for (int t = warp_begin(self->number); t < warp_end(self->number); ++t) {
        Thread& other = block.threads[t];
        if (!(self->mask >> t % LANES & 1) || other.state == State::RETURNED) continue;
        if (other.state != State::AT_COLLECTIVE) return false;
        if (other.op != self->op || other.mask != self->mask) {
            if (!(other.mask >> self->number % LANES & 1)) return false;  // it meets others first
            fail("divergent warp: " + name_of(self->number, block.number) + " at line " + std::to_string(self->line) +
                 " and " + name_of(t, block.number) + " at line " + std::to_string(other.line) +
                 " wait for each other in different operations or with different masks");
        }
        members.push_back(&other);
        present |= 1u << t % LANES;
    }
    for (Thread* thread : members) give_result(*thread, members, present);
    if (self->op == Op::SYNC) order_accesses(members);
    for (Thread* thread : members) release(*thread);
    return true;
}

uint64_t collective(Op op, unsigned mask, uint64_t value, int source, int line) {
    Thread* self = block.running;
    if (!(mask >> self->number % LANES & 1)) {
        fail(name_of(self->number, block.number) + " is not in the mask it gives at line " + std::to_string(line));
    }
    self->op = op;
    self->mask = mask;
    self->value = value;
    self->source = source;
    self->line = line;
    self->state = State::AT_COLLECTIVE;
    complete(self);
    self->fiber.leave_for(scheduler);
    return self->result;
}

static void run_thread() {
    kernel_entry(kernel_arguments);
    Thread* self = block.running;
    self->state = State::RETURNED;
    ++block.num_returned;
    if (block.num_at_barrier) {
        fail("divergent barrier: " + name_of(self->number, block.number) +
             " returned while others of its block wait at line " + std::to_string(block.barrier_line));
    }
    for (int t = warp_begin(self->number); t < warp_end(self->number); ++t) {
        if (block.threads[t].state == State::AT_COLLECTIVE) complete(&block.threads[t]);
    }
    self->fiber.leave_for(scheduler);
    __builtin_unreachable();
}

static void start_block(uint32_t number) {
    block.number = number;
    block.index = unfold(number, block.grid);
    block.num_returned = block.num_at_barrier = 0;
    block.barrier_sum = 0;
    block.start_time = block.barrier_time = ++block.time;
    block.ready.clear();
    for (uint32_t t = 0; t < block.num_threads; ++t) {
        Thread& thread = block.threads[t];
        thread.state = State::READY;
        thread.number = t;
        thread.index = unfold(t, block.dim);
        std::fill(thread.known, thread.known + LANES, 0);
        thread.stack = stacks + t * STRIDE;
        thread.fiber.start(thread.stack, run_thread);
        block.ready.push_back(t);
    }
    poison_shared(dynamic_memory.data(), dynamic_memory.size());
}

static void run_block(uint32_t number) {
    start_block(number);
    while (block.error.empty() && !block.ready.empty()) {
        std::swap(block.ready[next_random() % block.ready.size()], block.ready.back());
        block.running = &block.threads[block.ready.back()];
        block.ready.pop_back();
        scheduler.leave_for(block.running->fiber);
    }
    if (!block.error.empty() || block.num_returned == block.num_threads) return;
    const auto stuck = std::find_if(block.threads.begin(), block.threads.end(),
                                    [](const Thread& thread) { return thread.state != State::RETURNED; });
    const int line = stuck->state == State::AT_BARRIER ? block.barrier_line : stuck->line;
    block.error = "no thread can go on: " + name_of(stuck->number, number) + " waits at line " + std::to_string(line) +
                  " for threads that wait elsewhere";
}

}  // namespace shim

// Makes the stacks that every launch of the process uses; nullptr when the system gives no memory.
extern "C" char* shim_make_stacks() { return shim::make_stacks(shim::MAX_THREADS); }

// Runs a kernel over a grid, one block at a time in random order. Returns nullptr, or what went wrong. One launch at a time.
extern "C" const char* shim_launch(void (*kernel)(void**), const unsigned* grid, const unsigned* dim,
                                   uint64_t shared_bytes, void** arguments, uint64_t seed, shim::Buffer* buffers,
                                   uint64_t num_buffers, int checked, char* stacks_of_process, uint64_t* error_place) {
    using namespace shim;
    block = Block{};
    block.grid = {grid[0], grid[1], grid[2]};
    block.dim = {dim[0], dim[1], dim[2]};
    block.num_threads = dim[0] * dim[1] * dim[2];
    block.random = seed;
    block.checked = checked;
    block.threads.resize(block.num_threads);
    stacks = stacks_of_process;
    dynamic_memory.assign(shared_bytes, 0);
    kernel_entry = kernel;
    kernel_arguments = arguments;
    open_memory(buffers, num_buffers, dynamic_memory.data(), shared_bytes, reinterpret_cast<void*>(kernel));
    std::vector<uint32_t> order(grid[0] * grid[1] * grid[2]);
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[next_random() % i]);
    for (uint32_t number : order) {
        if (block.error.empty()) run_block(number);
    }
    close_memory();
    *error_place = place_in_module(block.error_pc);
    return block.error.empty() ? nullptr : block.error.c_str();
}
