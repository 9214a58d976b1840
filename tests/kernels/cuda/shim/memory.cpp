// Checks every access: inside a buffer, aligned, allowed, and ordered against the accesses of other threads.
//
// The kernel is compiled with -fsanitize=thread, which makes the compiler call a function before each load and store;
// the functions are here instead of the sanitizer's own. Two accesses of a byte race when one of them is a store, not
// both are atomic, and no barrier of their block or __syncwarp of their lanes lies between them. Blocks are never
// ordered against each other. So a race is found whichever order the threads happened to run in.
#include "memory.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "block.h"

extern char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace shim {

constexpr uint32_t YIELD_EVERY = 32;  // accesses, on average
constexpr uint64_t MOST_ACCESSES = 100'000'000;
constexpr uint16_t NONE = 0xFFFF, SEVERAL = 0xFFFE;

// What is known of one byte. Times are 0 where nothing happened.
struct Shadow {
    uint32_t stored_at, stored_block, read_at, read_block, readers;  // readers: lanes of the warp
    uint16_t stored_by, read_warp;                                   // read_warp: SEVERAL when not one
    bool atomic, blocks;                                             // blocks: read by several
};

struct Region {
    uint64_t begin, end;
    std::string name;
    uint8_t* stores;
    bool shared;
    std::vector<Shadow> shadow;
};

static std::vector<Region> regions;
static size_t last_region;
static uint64_t num_accesses;
static std::pair<uint64_t, uint64_t> module_range;
static uint64_t module_base;

static void add(const void* begin, size_t bytes, const char* name, uint8_t* stores, bool shared) {
    const uint64_t first = reinterpret_cast<uint64_t>(begin);
    if (!bytes) return;
    regions.push_back({first, first + bytes, name, stores, shared, std::vector<Shadow>(stores || shared ? bytes : 0)});
}

void open_memory(Buffer* buffers, size_t count, char* dynamic, size_t dynamic_bytes, const void* in_module) {
    regions.clear();
    last_region = num_accesses = 0;
    for (size_t i = 0; i < count; ++i) {
        const Buffer& b = buffers[i];
        add(reinterpret_cast<void*>(b.begin), b.end - b.begin, b.name, b.stores, false);
    }
    add(__start_cuda_shared, __stop_cuda_shared - __start_cuda_shared, "shared memory", nullptr, true);
    add(dynamic, dynamic_bytes, "dynamic shared memory", nullptr, true);
    Dl_info info;
    dladdr(in_module, &info);
    module_base = reinterpret_cast<uint64_t>(info.dli_fbase);
    module_range = {module_base, module_base};
    dl_iterate_phdr(
        [](dl_phdr_info* object, size_t, void*) {
            if (object->dlpi_addr != module_base) return 0;
            for (int i = 0; i < object->dlpi_phnum; ++i) {
                const auto& part = object->dlpi_phdr[i];
                const uint64_t end = part.p_type == PT_LOAD ? module_base + part.p_vaddr + part.p_memsz : 0;
                module_range.second = std::max(module_range.second, end);
            }
            return 1;
        },
        nullptr);
}

void close_memory() { regions.clear(); }

void poison_shared(char* dynamic, size_t dynamic_bytes) {
    if (__start_cuda_shared) std::memset(__start_cuda_shared, 0xCB, __stop_cuda_shared - __start_cuda_shared);
    if (dynamic_bytes) std::memset(dynamic, 0xCB, dynamic_bytes);
}

uint64_t place_in_module(const void* pc) {
    const uint64_t place = reinterpret_cast<uint64_t>(pc);
    return place >= module_range.first && place < module_range.second ? place - module_base - 1 : 0;
}

static Region* region_of(uint64_t address) {
    if (last_region < regions.size() && address >= regions[last_region].begin && address < regions[last_region].end) {
        return &regions[last_region];
    }
    for (size_t i = 0; i < regions.size(); ++i) {
        if (address < regions[i].begin || address >= regions[i].end) continue;
        last_region = i;
        return &regions[i];
    }
    return nullptr;
}

static std::string what(Kind kind, size_t bytes) {
    const char* verb = kind == Kind::READ ? " reads " : kind == Kind::WRITE ? " stores " : " changes ";
    return name_of(block.running->number, block.number) + verb + std::to_string(bytes) + " bytes ";
}

[[noreturn]] static void fail_outside(uint64_t address, size_t bytes, Kind kind, const void* pc) {
    std::string place = "in no buffer";
    uint64_t nearest = UINT64_MAX;
    for (const Region& region : regions) {
        const uint64_t gap = address < region.begin ? region.begin - address : address + bytes - region.end;
        if (gap >= nearest) continue;
        nearest = gap;
        place = address < region.begin ? std::to_string(gap) + " bytes before the start of " + region.name
                                       : std::to_string(gap) + " bytes past the end of " + region.name;
    }
    fail("outside: " + what(kind, bytes) + place, pc);
}

// An access that is being checked: of `bytes` bytes at an offset of a region.
struct Access {
    Region& region;
    uint64_t offset;
    size_t bytes;
    Kind kind;
    const void* pc;

    // thread: -1 when it is not known which.
    [[noreturn]] void fail_race(const char* other_did, int thread, uint32_t in_block) const {
        const std::string who = thread < 0 ? "another thread" : name_of(thread, in_block);
        fail("race: " + what(kind, bytes) + "at byte " + std::to_string(offset) + " of " + region.name + ", which " +
                 who + other_did + " with nothing that orders the two",
             pc);
    }

    // Shared memory is a new one in each block.
    bool gone(uint32_t at) const { return !at || (region.shared && at < block.start_time); }

    void check_against_store(const Shadow& byte) const {
        if (gone(byte.stored_at) || (kind == Kind::ATOMIC && byte.atomic)) return;
        if (byte.stored_block == block.number && block.before(byte.stored_by, byte.stored_at)) return;
        fail_race(byte.atomic ? " changed atomically" : " stored", byte.stored_by, byte.stored_block);
    }

    void check_against_reads(const Shadow& byte) const {
        if (gone(byte.read_at)) return;
        if (byte.blocks || byte.read_block != block.number) fail_race(" read", -1, 0);
        if (byte.read_at < block.barrier_time) return;
        if (byte.read_warp == SEVERAL) fail_race(" read", -1, 0);
        for (int l = 0; l < LANES; ++l) {
            const int reader = byte.read_warp * LANES + l;
            if ((byte.readers >> l & 1) && !block.before(reader, byte.read_at)) {
                fail_race(" read", reader, byte.read_block);
            }
        }
    }

    void note_store(Shadow& byte) const {
        byte.stored_at = block.time;
        byte.stored_block = block.number;
        byte.stored_by = block.running->number;
        byte.atomic = kind == Kind::ATOMIC;
    }

    // Readers since the last barrier are remembered as lanes of one warp, or as several warps. A lane whose read comes
    // before this one need not be: whoever is ordered after this read is ordered after that one.
    void note_read(Shadow& byte) const {
        const uint16_t warp = block.running->number / LANES;
        const bool settled = byte.read_block == block.number && !byte.blocks && byte.read_at < block.barrier_time;
        if (gone(byte.read_at) || settled) {
            byte.readers = 0;
            byte.read_warp = warp;
            byte.blocks = false;
            byte.read_block = block.number;
        }
        byte.blocks |= byte.read_block != block.number;
        for (int l = 0; l < LANES && byte.read_warp == warp && !byte.blocks; ++l) {
            if (block.before(warp * LANES + l, byte.read_at)) byte.readers &= ~(1u << l);
        }
        if (byte.read_warp != warp) byte.read_warp = SEVERAL;
        byte.readers |= 1u << block.running->number % LANES;
        byte.read_at = block.time;
    }
};

void access(const void* pointer, size_t bytes, Kind kind, const void* pc) {
    if (!block.checked) return;
    const uint64_t address = reinterpret_cast<uint64_t>(pointer);
    if (address - reinterpret_cast<uint64_t>(block.running->stack) < STACK_BYTES) return;  // the thread's own variables
    Region* region = region_of(address);
    if (!region) {
        if (address >= module_range.first && address < module_range.second) return;  // constants
        fail_outside(address, bytes, kind, pc);
    }
    if (address + bytes > region->end) fail_outside(address, bytes, kind, pc);
    const uint64_t offset = address - region->begin;
    if ((bytes & (bytes - 1)) == 0 && bytes <= 16 && address % bytes) {
        fail("misaligned: " + what(kind, bytes) + "at byte " + std::to_string(offset) + " of " + region->name, pc);
    }
    if (kind != Kind::READ && !region->stores && !region->shared) {
        fail("read-only: " + what(kind, bytes) + "at byte " + std::to_string(offset) + " of " + region->name, pc);
    }
    if (++num_accesses > MOST_ACCESSES) fail("no end: the kernel made 100,000,000 accesses", pc);
    if (next_random() % YIELD_EVERY == 0) yield();
    if (region->shadow.empty()) return;  // an input: nobody stores to it
    for (uint64_t at = offset; at < offset + bytes; ++at) {
        Shadow& byte = region->shadow[at];
        const Access checked{*region, at, bytes, kind, pc};
        checked.check_against_store(byte);
        if (kind == Kind::READ) {
            checked.note_read(byte);
            continue;
        }
        checked.check_against_reads(byte);
        checked.note_store(byte);
        if (region->stores && region->stores[at] < 255) ++region->stores[at];
    }
}

}  // namespace shim

#define SHIM_ACCESSES(bytes)                                                   \
    extern "C" void __tsan_read##bytes(void* p) {                              \
        shim::access(p, bytes, shim::Kind::READ, __builtin_return_address(0)); \
    }                                                                          \
    extern "C" void __tsan_write##bytes(void* p) {                             \
        shim::access(p, bytes, shim::Kind::WRITE, __builtin_return_address(0)); \
    }
SHIM_ACCESSES(1)
SHIM_ACCESSES(2)
SHIM_ACCESSES(4)
SHIM_ACCESSES(8)
SHIM_ACCESSES(16)

// What the compiler cannot prove to be aligned still has to be, on a device.
#define SHIM_UNALIGNED(bytes)                                                                        \
    extern "C" void __tsan_unaligned_read##bytes(void* p) {                                          \
        shim::access(p, bytes, shim::Kind::READ, __builtin_return_address(0));                       \
    }                                                                                                \
    extern "C" void __tsan_unaligned_write##bytes(void* p) {                                         \
        shim::access(p, bytes, shim::Kind::WRITE, __builtin_return_address(0));                      \
    }
SHIM_UNALIGNED(2)
SHIM_UNALIGNED(4)
SHIM_UNALIGNED(8)
SHIM_UNALIGNED(16)

extern "C" void __tsan_read_range(void* p, uint64_t bytes) {
    shim::access(p, bytes, shim::Kind::READ, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* p, uint64_t bytes) {
    shim::access(p, bytes, shim::Kind::WRITE, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
