// Copies rows of several tiers by packed slot and converts them on the way; see kernels/rows/gather.py and kernels/rows/slots.py.
//
// A team of TEAM lanes moves one row, PACK elements a lane and step, so that the wider side of a step is at most 16
// bytes and neighbouring lanes touch neighbouring words. A team has IN_FLIGHT rows under way: it finds and loads all of
// them before it stores the first, because a row of the host tier comes over the bus and takes a microsecond or two.
// Every output word is stored once, by one lane.
//
// kernels/rows/gather_cuda.py picks the defines from dtypes, width and alignment.
#include <cuda_fp16.h>

#ifndef FROM
#define FROM float
#define TO float
#define PACK 4
#define TEAM 32
#endif
#ifndef IN_FLIGHT
#define IN_FLIGHT 4
#endif

struct Half {
    unsigned short bits;
    __device__ operator float() const { return __half2float(__ushort_as_half(bits)); }
};

struct BFloat {
    unsigned short bits;
    __device__ operator float() const { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
};

using From = FROM;
using To = TO;

template <class T>
struct alignas(PACK * sizeof(T)) Pack {
    T element[PACK];
};

struct Rows {
    const char* first;
    long long stride;  // bytes from one row to the next
    long long count;
};

constexpr int ROW_BITS = 29;
constexpr int ROW_MASK = (1 << ROW_BITS) - 1;
constexpr int NO_FEATURES = -1;
constexpr int NO_FAULT = 0x7FFFFFFF;
constexpr int DEVICE = 0, HOST = 1, STAGED = 2;

// Device, host and staged rows, and one entry a peer.
struct Tiers {
    Rows device, host, staged;
    const Rows* peers;
    int num_peers, peer_stride;

    __device__ Rows rows_of(int tier, int* row) const {
        if (tier == DEVICE) return device;
        if (tier == HOST) return host;
        if (tier == STAGED) return staged;
        const int peer = *row / peer_stride;
        *row -= peer * peer_stride;
        return peer < num_peers ? peers[peer] : Rows{nullptr, 0, 0};
    }

    // The row's first byte; nullptr for a node without features, and for a slot that names no row: *fault notes it.
    __device__ const char* find(int slot, long long position, int* fault) const {
        if (slot == NO_FEATURES) return nullptr;
        int row = slot & ROW_MASK;
        const Rows rows = slot < 0 ? Rows{nullptr, 0, 0} : rows_of(slot >> ROW_BITS, &row);
        if (row < rows.count) return rows.first + row * rows.stride;
        atomicMax(fault, NO_FAULT - static_cast<int>(position));
        return nullptr;
    }
};

__device__ void store(Pack<To>* out, const Pack<From>& from, bool present) {
    Pack<To> to;
#pragma unroll
    for (int e = 0; e < PACK; ++e) to.element[e] = present ? static_cast<To>(from.element[e]) : To{};
    *out = to;
}

// packs: width / PACK. fault: is 0; NO_FAULT less the least position whose slot names no row is left there.
extern "C" __global__ void __launch_bounds__(256)
gather_tiered(const int* slots, long long num_slots, long long packs, const char* device_first, long long device_stride,
              long long device_count, const char* host_first, long long host_stride, long long host_count,
              const char* staged_first, long long staged_stride, long long staged_count, const Rows* peers,
              int num_peers, int peer_stride, Pack<To>* out, int* fault) {
    const Tiers tiers{{device_first, device_stride, device_count},
                      {host_first, host_stride, host_count},
                      {staged_first, staged_stride, staged_count},
                      peers,
                      num_peers,
                      peer_stride};
    const int lane = threadIdx.x % TEAM;
    const long long teams = static_cast<long long>(gridDim.x) * (blockDim.x / TEAM);
    const long long team = static_cast<long long>(blockIdx.x) * (blockDim.x / TEAM) + threadIdx.x / TEAM;
    for (long long first = team * IN_FLIGHT; first < num_slots; first += teams * IN_FLIGHT) {
        const char* row[IN_FLIGHT];
#pragma unroll
        for (int j = 0; j < IN_FLIGHT; ++j) {
            const bool inside = first + j < num_slots;
            row[j] = inside ? tiers.find(slots[first + j], first + j, fault) : nullptr;
        }
        for (long long pack = lane; pack < packs; pack += TEAM) {
            Pack<From> loaded[IN_FLIGHT];
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; ++j) {
                if (row[j]) loaded[j] = reinterpret_cast<const Pack<From>*>(row[j])[pack];
            }
#pragma unroll
            for (int j = 0; j < IN_FLIGHT; ++j) {
                if (first + j < num_slots) store(out + (first + j) * packs + pack, loaded[j], row[j]);
            }
        }
    }
}
