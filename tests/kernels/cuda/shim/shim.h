// CUDA's device language in terms of runtime.h. Only what kernels of this project may use is here; add what is missing.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __constant__ static
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
// Dynamic shared memory (`extern __shared__ T name[];`) is rewritten to shim::dynamic_shared() before this is compiled.
#define __shared__ static __attribute__((section("cuda_shared")))

#define threadIdx (shim::thread_index())
#define blockIdx (shim::block_index())
#define blockDim (shim::block_dim())
#define gridDim (shim::grid_dim())
constexpr int warpSize = 32;
using dim3 = shim::Index;

#define SHIM_VECTORS(type, name)                              \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };  \
    struct name##3 { type x, y, z; };                         \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; };
SHIM_VECTORS(signed char, char)
SHIM_VECTORS(unsigned char, uchar)
SHIM_VECTORS(short, short)
SHIM_VECTORS(unsigned short, ushort)
SHIM_VECTORS(int, int)
SHIM_VECTORS(unsigned, uint)
SHIM_VECTORS(float, float)
SHIM_VECTORS(double, double)
SHIM_VECTORS(long long, longlong)
SHIM_VECTORS(unsigned long long, ulonglong)

#define __syncthreads() ((void)shim::barrier(__LINE__, 0))
#define __syncthreads_count(predicate) (shim::barrier(__LINE__, (predicate) ? 1 : 0))
#define __syncthreads_or(predicate) (shim::barrier(__LINE__, (predicate) ? 1 : 0) > 0)
#define __syncthreads_and(predicate) (shim::barrier(__LINE__, (predicate) ? 0 : 1) == 0)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __activemask() (shim::active_mask())

namespace shim {

#define SHIM_UNCHECKED __attribute__((no_sanitize("thread")))

template <class T>
SHIM_UNCHECKED uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
SHIM_UNCHECKED T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T>
T shuffle(unsigned mask, T value, int source, int line) {
    return from_bits<T>(collective(Op::SHUFFLE, mask, to_bits(value), source, line));
}

// The macros below put the line in front; the width, or the mask of __syncwarp, may be left out.
struct At {
    int line;

    template <class T>
    T index(unsigned mask, T value, int source, int width = 32) const {
        return shuffle(mask, value, segment(width) + (source & (width - 1)), line);
    }
    template <class T>
    T up(unsigned mask, T value, unsigned delta, int width = 32) const {
        const int from = lane() - static_cast<int>(delta);
        return shuffle(mask, value, from < segment(width) ? lane() : from, line);
    }
    template <class T>
    T down(unsigned mask, T value, unsigned delta, int width = 32) const {
        const int from = lane() + static_cast<int>(delta);
        return shuffle(mask, value, from >= segment(width) + width ? lane() : from, line);
    }
    template <class T>
    T exchange(unsigned mask, T value, int bits, int width = 32) const {
        const int from = lane() ^ bits;
        return shuffle(mask, value, from >= segment(width) + width ? lane() : from, line);
    }
    void sync(unsigned mask = 0xFFFFFFFFu) const { collective(Op::SYNC, mask, 0, lane(), line); }
    template <class T>
    unsigned match(unsigned mask, T value) const {
        return collective(Op::MATCH, mask, to_bits(value), lane(), line);
    }
    unsigned ballot(unsigned mask, bool value) const { return collective(Op::BALLOT, mask, value, lane(), line); }
    // Minimum and maximum compare as signed 64-bit numbers, which holds int and unsigned alike.
    template <class T>
    T reduce(Op op, unsigned mask, T value) const {
        return static_cast<T>(collective(op, mask, static_cast<uint64_t>(static_cast<int64_t>(value)), lane(), line));
    }

  private:
    static int segment(int width) { return lane() & ~(width - 1); }
};

// An atomic operation is one step of the running fiber: nothing can come between.
template <class T, class Change>
SHIM_UNCHECKED T atomic(T* address, Change change) {
    access(address, sizeof(T), Kind::ATOMIC, __builtin_return_address(0));
    const T before = *address;
    *address = change(before);
    return before;
}

template <class... A, size_t... I>
SHIM_UNCHECKED void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_reference_t<A>*>(arguments[I])...);
}
template <class... A>
SHIM_UNCHECKED void call(void (*kernel)(A...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>{});
}

}  // namespace shim

#define __shfl_sync(...) (shim::At{__LINE__}.index(__VA_ARGS__))
#define __shfl_up_sync(...) (shim::At{__LINE__}.up(__VA_ARGS__))
#define __shfl_down_sync(...) (shim::At{__LINE__}.down(__VA_ARGS__))
#define __shfl_xor_sync(...) (shim::At{__LINE__}.exchange(__VA_ARGS__))
#define __syncwarp(...) (shim::At{__LINE__}.sync(__VA_ARGS__))
#define __match_any_sync(...) (shim::At{__LINE__}.match(__VA_ARGS__))
#define __ballot_sync(...) (shim::At{__LINE__}.ballot(__VA_ARGS__))
#define __any_sync(...) (__ballot_sync(__VA_ARGS__) != 0)
#define __all_sync(mask, predicate) (__ballot_sync(mask, !(predicate)) == 0)
#define __reduce_add_sync(...) (shim::At{__LINE__}.reduce(shim::Op::ADD, __VA_ARGS__))
#define __reduce_min_sync(...) (shim::At{__LINE__}.reduce(shim::Op::MIN, __VA_ARGS__))
#define __reduce_max_sync(...) (shim::At{__LINE__}.reduce(shim::Op::MAX, __VA_ARGS__))
#define __reduce_and_sync(...) (shim::At{__LINE__}.reduce(shim::Op::AND, __VA_ARGS__))
#define __reduce_or_sync(...) (shim::At{__LINE__}.reduce(shim::Op::OR, __VA_ARGS__))
#define __reduce_xor_sync(...) (shim::At{__LINE__}.reduce(shim::Op::XOR, __VA_ARGS__))

#define SHIM_ATOMIC(name, expression)                                                                \
    template <class T>                                                                               \
    T name(T* address, std::common_type_t<T> value) {                                                \
        return shim::atomic(address, [value](T before) __attribute__((no_sanitize("thread"))) -> T { \
            return expression;                                                                       \
        });                                                                                          \
    }
SHIM_ATOMIC(atomicAdd, before + value)
SHIM_ATOMIC(atomicSub, before - value)
SHIM_ATOMIC(atomicMin, value < before ? value : before)
SHIM_ATOMIC(atomicMax, value > before ? value : before)
SHIM_ATOMIC(atomicAnd, before & value)
SHIM_ATOMIC(atomicOr, before | value)
SHIM_ATOMIC(atomicXor, before ^ value)
SHIM_ATOMIC(atomicExch, (void(before), value))

template <class T>
T atomicCAS(T* address, std::common_type_t<T> expected, std::common_type_t<T> value) {
    return shim::atomic(address, [expected, value](T before) __attribute__((no_sanitize("thread"))) -> T {
        return before == expected ? value : before;
    });
}

template <class T> T __ldg(const T* address) { return *address; }
template <class T> T __ldcg(const T* address) { return *address; }
template <class T> T __ldcs(const T* address) { return *address; }
template <class T> void __stcg(T* address, T value) { *address = value; }
template <class T> void __stcs(T* address, T value) { *address = value; }

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) { return bits ? __builtin_clz(bits) : 32; }
inline int __clzll(long long bits) { return bits ? __builtin_clzll(bits) : 64; }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __ffsll(long long bits) { return __builtin_ffsll(bits); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline float __uint_as_float(unsigned bits) { return shim::from_bits<float>(bits); }
inline float __int_as_float(int bits) { return shim::from_bits<float>(static_cast<unsigned>(bits)); }
inline unsigned __float_as_uint(float value) { return static_cast<unsigned>(shim::to_bits(value)); }
inline double __longlong_as_double(long long bits) { return shim::from_bits<double>(static_cast<unsigned long long>(bits)); }
inline long long __double_as_longlong(double value) { return static_cast<long long>(shim::to_bits(value)); }
inline int __float_as_int(float value) { return static_cast<int>(shim::to_bits(value)); }

// The launcher's way into a kernel: one function a kernel that takes what cuLaunchKernel takes.
#define SHIM_KERNEL(name) \
    extern "C" SHIM_UNCHECKED void shim_kernel_##name(void** arguments) { shim::call(name, arguments); }
