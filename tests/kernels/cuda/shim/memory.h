// The memory that a kernel may touch, and what happened to every byte of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shim {

struct Buffer {
    uint64_t begin, end;
    const char* name;
    uint8_t* stores;  // how often each byte was stored, up to 255; null: read-only
};

void open_memory(Buffer* buffers, size_t count, char* dynamic, size_t dynamic_bytes, const void* in_module);
void close_memory();

// What shared memory holds when a block starts is garbage, as on a device.
void poison_shared(char* dynamic, size_t dynamic_bytes);

// Offset of an address in the kernel's module, for addr2line; 0 when there is none.
uint64_t place_in_module(const void* pc);

}  // namespace shim
