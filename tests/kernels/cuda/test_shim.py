"""The shim finds what is wrong with a kernel, in every order of its threads, and computes what a device would."""

import numpy as np
import pytest
import torch

from tests.kernels.cuda.shim import ShimDevice, ShimError

SEEDS = range(5)
REVERSE = """
extern "C" __global__ void reverse(const int* in, int* out) {
    __shared__ int tile[64];
    tile[threadIdx.x] = in[threadIdx.x + blockIdx.x * 64];
    BARRIER
    out[threadIdx.x + blockIdx.x * 64] = tile[63 - threadIdx.x];
}
"""


def run(text, arrays, *scalars, grid=1, block=64, seed=0, shared_mem=0, writable=("out",), defines=None):
    """Launches the first kernel of a text on arrays given by name, then scalars. Returns the device."""
    device = ShimDevice(seed, writable)
    name = text.split("(")[0].split()[-1]
    arguments = tuple(device.share(array, key) for key, array in arrays.items()) + scalars
    device.kernel_of(text, name, defines)((grid,), (block,), arguments, shared_mem=shared_mem)
    return device


def reverse(defines, seed):
    arrays = {"in": np.arange(256, dtype=np.int32), "out": np.zeros(256, np.int32)}
    device = run(REVERSE, arrays, grid=4, seed=seed, defines=defines)
    np.testing.assert_array_equal(arrays["out"].reshape(4, 64), arrays["in"].reshape(4, 64)[:, ::-1])
    assert (device.stores["out"] == 1).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_orders_shared_memory(seed):
    reverse({"BARRIER": "__syncthreads();"}, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_missing_barrier_is_a_race_in_every_order(seed):
    with pytest.raises(ShimError, match=r"race: thread .* 4 bytes at byte \d+ of shared memory, which .*line [46] of"):
        reverse({"BARRIER": ""}, seed)
    with pytest.raises(ShimError, match="race"):  # orders the lanes of a warp only, and the rows cross warps
        reverse({"BARRIER": "__syncwarp();"}, seed)


def test_orders_differ_and_a_seed_repeats_its_own():
    # The threads of a block write down the order in which they came.
    text = """
    extern "C" __global__ void queue(int* next, int* out) { out[atomicAdd(next, 1)] = threadIdx.x; }
    """
    orders = []
    for seed in (1, 1, 2, 3):
        arrays = {"next": np.zeros(1, np.int32), "out": np.zeros(64, np.int32)}
        run(text, arrays, seed=seed, writable=("next", "out"))
        assert sorted(arrays["out"]) == list(range(64))
        orders.append(tuple(arrays["out"]))
    assert orders[0] == orders[1] and len(set(orders)) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_updates_show_and_atomics_lose_none(seed):
    text = """
    extern "C" __global__ void count(int* out) { for (int i = 0; i < 3; ++i) ADD }
    """
    arrays = {"out": np.zeros(1, np.int32)}
    run(text, arrays, grid=3, seed=seed, defines={"ADD": "atomicAdd(out,2);"})
    assert arrays["out"][0] == 64 * 3 * 3 * 2
    with pytest.raises(ShimError, match="race"):
        run(text, arrays, grid=1, seed=seed, defines={"ADD": "*out+=2;"})
    with pytest.raises(ShimError, match=r"race: .* (changed atomically|changes 4 bytes)"):
        run(text, arrays, grid=1, seed=seed, defines={"ADD": "{atomicAdd(out,2);if(*out<0)return;}"})


def test_blocks_are_not_ordered_by_anything():
    text = 'extern "C" __global__ void last(int* out) { if (threadIdx.x == 0) out[0] = blockIdx.x; }'
    run(text, {"out": np.zeros(1, np.int32)}, grid=1)
    with pytest.raises(ShimError, match=r"race: .* which thread \(0,0,0\) of block"):
        run(text, {"out": np.zeros(1, np.int32)}, grid=2)


DIVERGENT = {
    "if (threadIdx.x < 40) __syncthreads();": "divergent barrier: .* returned while|waits at line .* have returned",
    "if (threadIdx.x == 5) return; __syncthreads();": "divergent barrier",
    "if (threadIdx.x % 2)\n __syncthreads(); else\n __syncthreads();": "divergent barrier: .* others of its block at line",
    "if (threadIdx.x < 2) __syncwarp(3u); else if (threadIdx.x == 2) __syncwarp(6u); __syncthreads();": "no thread can|warp",
    "if (threadIdx.x == 0) __syncwarp(); else __syncthreads();": "no thread can go on",
    "if (threadIdx.x == 9) __ballot_sync(0xFFu, 1);": "is not in the mask",
    "if (threadIdx.x == 0) __shfl_sync(1u, 1, 7);": "reads lane 7 .* takes no part",
    "__shfl_sync(0xFFFFFFFFu, 1, threadIdx.x % 2 ? 40 : 3, threadIdx.x / 32 ? 64 : 64);": "reads lane 40",
    "for (volatile int i = 0; ; ) out[threadIdx.x] = i;": "no end",
}


@pytest.mark.parametrize("body", DIVERGENT)
def test_threads_that_do_not_meet_are_reported(body):
    text = 'extern "C" __global__ void meet(int* out) { ' + body + " }"
    for seed in SEEDS if "volatile" not in body else [0]:
        with pytest.raises(ShimError, match=DIVERGENT[body]):
            run(text, {"out": np.zeros(64, np.int32)}, seed=seed)


FORBIDDEN = {
    "out[threadIdx.x + 1] = 0;": "outside: thread .63,0,0. of block .0,0,0. stores 4 bytes .* past the end of out",
    "out[threadIdx.x] = in[-1 - (int)threadIdx.x];": "outside: .* reads 4 bytes .* before the start of in",
    "((int*)in)[threadIdx.x] = 0;": "read-only: .* of in",
    "((int4*)(out + 1))[0] = {};": "misaligned: .* 16 bytes at byte 4 of out",
    "*(int*)16 = 1;": "outside",
}


@pytest.mark.parametrize("body", FORBIDDEN)
def test_forbidden_accesses_are_reported(body):
    text = 'extern "C" __global__ void touch(const int* in, int* out) { ' + body + " }"
    memory = np.zeros(1024, np.int32)  # apart in one array, so that neither is beside the other
    first = -memory.ctypes.data % 16 // 4
    arrays = {"in": memory[first + 512 : first + 576], "out": memory[first + 64 : first + 128]}
    with pytest.raises(ShimError, match=FORBIDDEN[body]):
        run(text, arrays)


def test_stores_are_counted_a_byte():
    text = """extern "C" __global__ void stores(unsigned char* out) {
        out[threadIdx.x] = 1;
        if (threadIdx.x < 4) *(unsigned short*)(out + 2 * threadIdx.x + (threadIdx.x < 9 ? 64 : 0)) = 2;
        if (threadIdx.x == 7) out[7] = out[7] + 1;
    }"""
    device = run(text, {"out": np.zeros(80, np.uint8)})
    counts = np.zeros(80, int)
    counts[:72] = 1
    counts[7] = 2
    np.testing.assert_array_equal(device.stores["out"], counts)


WARP = """
extern "C" __global__ void warp(const VALUE* in, VALUE* out) {
    const int t = threadIdx.x;
    const VALUE v = in[t];
    out[0 * 64 + t] = __shfl_sync(0xFFFFFFFFu, v, 5);
    out[1 * 64 + t] = __shfl_sync(0xFFFFFFFFu, v, t + 1, 8);
    out[2 * 64 + t] = __shfl_up_sync(0xFFFFFFFFu, v, 3);
    out[3 * 64 + t] = __shfl_down_sync(0xFFFFFFFFu, v, 2, 16);
    out[4 * 64 + t] = __shfl_xor_sync(0xFFFFFFFFu, v, 16);
    VALUE sum = v;
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    out[5 * 64 + t] = sum;
    out[6 * 64 + t] = t % 32 % 3 == 0 ? __shfl_sync(0x49249249u, v, 30) : v;
}
"""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["int", "float", "double", "long long", "unsigned short"])
def test_shuffles(seed, dtype):
    numpy_type = {"int": "i4", "float": "f4", "double": "f8", "long long": "i8", "unsigned short": "u2"}[dtype]
    values = np.random.default_rng(seed).integers(0, 1000, 64).astype(numpy_type)
    arrays = {"in": values, "out": np.zeros((7, 64), numpy_type)}
    run(WARP, arrays, seed=seed, defines={"VALUE": dtype})
    warps, t = values.reshape(2, 32), np.arange(32)
    expected = [
        np.repeat(warps[:, 5:6], 32, 1),
        warps[:, (t & ~7) + (t + 1) % 8],
        warps[:, np.where(t < 3, t, t - 3)],
        warps[:, np.where(t % 16 >= 14, t, (t + 2) % 32)],
        warps[:, t ^ 16],
        np.repeat(warps.sum(1, keepdims=True, dtype=numpy_type), 32, 1),
    ]
    np.testing.assert_array_equal(arrays["out"][:6], np.stack([e.reshape(64) for e in expected]))
    np.testing.assert_array_equal(arrays["out"][6].reshape(2, 32), np.where(t % 3 == 0, warps[:, 30:31], warps))


def test_votes_and_reductions():
    text = """extern "C" __global__ void vote(const int* in, unsigned* out) {
        const int t = threadIdx.x, v = in[t];
        const unsigned all = 0xFFFFFFFFu;
        out[t] = __ballot_sync(all, v > 0);
        out[48 + t] = __any_sync(all, v == 7) + 2 * __all_sync(all, v < 100);
        out[96 + t] = __match_any_sync(all, v);
        out[144 + t] = __reduce_add_sync(all, v);
        out[192 + t] = __reduce_max_sync(all, v);
        out[240 + t] = __reduce_min_sync(all, v);
        out[288 + t] = __syncthreads_count(v > 0);
        out[336 + t] = __syncthreads_or(v == 7) + 2 * __syncthreads_and(v < 100);
    }"""
    values = np.random.default_rng(0).integers(-3, 4, 48).astype(np.int32)  # the second warp has 16 lanes
    values[40] = 7
    arrays = {"in": values, "out": np.zeros((8, 48), np.uint32)}
    run(text, arrays, block=48)
    for low, high in ((0, 32), (32, 48)):
        v = values[low:high].astype(int)
        bits = 1 << np.arange(len(v), dtype=np.int64)
        ballot, any7 = int(bits[v > 0].sum()), int((v == 7).any())
        rows = arrays["out"][:, low:high].astype(np.int64)
        assert (rows[0] == ballot).all() and (rows[1] == any7 + 2).all()
        np.testing.assert_array_equal(rows[2], [bits[v == x].sum() for x in v])
        for row, value in zip(rows[3:6], (v.sum(), v.max(), v.min()), strict=True):
            assert (row.astype(np.uint32).view(np.int32) == value).all()
    assert (arrays["out"][6] == (values > 0).sum()).all() and (arrays["out"][7] == 3).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_syncwarp_orders_the_lanes_it_names_and_no_others(seed):
    text = """extern "C" __global__ void pairs(int* out) {
        __shared__ int slot[32];
        slot[threadIdx.x] = threadIdx.x;
        __syncwarp(3u << (threadIdx.x & ~1u));
        out[threadIdx.x] = slot[threadIdx.x ^ PARTNER];
    }"""
    arrays = {"out": np.zeros(32, np.int32)}
    run(text, arrays, block=32, seed=seed, defines={"PARTNER": "1"})
    assert arrays["out"].tolist() == [t ^ 1 for t in range(32)]
    with pytest.raises(ShimError, match="race"):
        run(text, arrays, block=32, seed=seed, defines={"PARTNER": "2"})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lane_may_change_what_others_read_before_they_met(seed):
    text = """extern "C" __global__ void change(int* out) {
        __shared__ int word;
        if (threadIdx.x == 0) word = 5;
        __syncwarp();
        const int seen = word;
        __syncwarp(WHO);
        if (threadIdx.x == 0) word += 1;
        __syncwarp();
        out[threadIdx.x] = seen + word;
    }"""
    arrays = {"out": np.zeros(32, np.int32)}
    run(text, arrays, block=32, seed=seed, defines={"WHO": "0xFFFFFFFFu"})
    assert (arrays["out"] == 11).all()
    with pytest.raises(ShimError, match="race"):  # lane 31 did not meet lane 0
        run(text, arrays, block=32, seed=seed, defines={"WHO": "threadIdx.x<31?0x7FFFFFFFu:0x80000000u"})


def test_shared_memory_belongs_to_a_block_and_starts_as_garbage():
    text = """extern "C" __global__ void fresh(int* out) {
        __shared__ int fixed[64];
        extern __shared__ __align__(16) int grown[];
        out[blockIdx.x * 64 + threadIdx.x] = (fixed[threadIdx.x] == (int)0xCBCBCBCB) + (grown[threadIdx.x] == (int)0xCBCBCBCB);
        fixed[threadIdx.x] = grown[threadIdx.x] = 0;
    }"""
    arrays = {"out": np.zeros(256, np.int32)}
    run(text, arrays, grid=4, shared_mem=256)
    assert (arrays["out"] == 2).all()
    with pytest.raises(ShimError, match="past the end of dynamic shared memory"):
        run(text, arrays, grid=4, shared_mem=252)


def test_reading_then_storing_needs_an_order_too():
    text = """extern "C" __global__ void shift(int* out) {
        const int next = out[(threadIdx.x + 1) % 64];
        BETWEEN
        out[threadIdx.x] = next;
    }"""
    arrays = {"out": np.arange(64, dtype=np.int32)}
    run(text, arrays, defines={"BETWEEN": "__syncthreads();"})
    assert arrays["out"].tolist() == [(t + 1) % 64 for t in range(64)]
    for seed in SEEDS:
        with pytest.raises(ShimError, match="race"):
            run(text, arrays, seed=seed, defines={"BETWEEN": ""})


def test_atomics_return_what_was_there():
    text = """extern "C" __global__ void old(unsigned long long* out, float* sum, int* least) {
        out[1 + atomicAdd(out, 1ull)] = threadIdx.x;
        atomicAdd(sum, 0.5f);
        atomicMin(least, -(int)threadIdx.x);
        for (int seen = least[1], next; ; seen = next) { next = atomicCAS(least + 2, seen, seen + 1); if (next == seen) break; }
    }"""
    arrays = {"out": np.zeros(65, np.uint64), "sum": np.zeros(1, np.float32), "least": np.zeros(3, np.int32)}
    run(text, arrays, writable=tuple(arrays))
    assert sorted(arrays["out"][1:]) == list(range(64)) and arrays["out"][0] == 64
    assert arrays["sum"][0] == 32 and arrays["least"].tolist() == [-63, 0, 64]


def test_half_types_convert_as_torch_does():
    text = """
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    extern "C" __global__ void convert(const float* in, float* out, unsigned short* half, unsigned short* brain) {
        const int i = blockIdx.x * 256 + threadIdx.x;
        half[i] = __half_as_ushort(__float2half(in[i]));
        brain[i] = __bfloat16_as_ushort(__float2bfloat16(in[i]));
        out[i] = __half2float(__ushort_as_half(half[i])) + __bfloat162float(__ushort_as_bfloat16(brain[i]));
    }"""
    bits = np.random.default_rng(0).integers(0, 2**32, 4096, np.uint32)
    halves = np.arange(0, 65536, 17, dtype=np.uint16).view(np.float16).astype(np.float32)
    with np.errstate(invalid="ignore"):
        values = np.concatenate([bits.view(np.float32), halves, halves * 1.0004883, halves * 1.0009765])
    values = values[~np.isnan(values)][: 256 * 48].astype(np.float32)
    values = np.concatenate([values, np.zeros(-len(values) % 256, np.float32)])
    arrays = {"in": values, "out": np.zeros_like(values)}
    arrays |= {name: np.zeros(len(values), np.uint16) for name in ("half", "brain")}
    run(text, arrays, grid=len(values) // 256, block=256, writable=("out", "half", "brain"))
    tensor = torch.from_numpy(values)
    half, brain = tensor.half(), tensor.bfloat16()
    np.testing.assert_array_equal(arrays["half"], half.view(torch.uint16).numpy())
    np.testing.assert_array_equal(arrays["brain"], brain.view(torch.uint16).numpy())
    np.testing.assert_array_equal(arrays["out"], (half.float() + brain.float()).numpy())


def test_thousands_of_blocks_with_every_thread_in_its_place():
    text = """extern "C" __global__ void place(int* out) {
        const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
        __syncthreads();
        out[y * gridDim.x * blockDim.x + x] = y * 1000 + x;
    }"""
    device = ShimDevice()
    out = np.zeros((60 * 4, 50 * 16), np.int32)
    device.kernel_of(text, "place")((50, 60), (16, 4), (device.share(out, "out"),))
    np.testing.assert_array_equal(out, np.add.outer(np.arange(240) * 1000, np.arange(800)))
    assert (device.stores["out"] == 1).all()
