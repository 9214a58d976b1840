// Softmax attention over a block's edges and its gradient; see kernels/layers/attention.py.
//
// Forward: `weigh`, a thread for a destination and a head, makes the weights of its edges in order; `spread`, a team of lanes for a row, sums
// weighted rows in edge order. Backward: `multiply`, a team for an edge of a source, makes inner products in the CPU's order of lanes;
// `spread` over the transpose sums weighted gradients; `grade`, a thread for a destination and a head, turns products into gradients of
// scores; `pull`, a thread for a source and a head, sums those. Everything is written once, in edge order, without atomics.
//
// Row nnz + i of the edge arrays is the own term of destination i.
#include "base/element.cuh"

#ifndef ELEMENT
#define ELEMENT float
#define PACK 4
#define TEAM 32
#define BACKWARD 0
#endif

using Element = ELEMENT;
using Number = Sum<Element>;
using Columns = Pack<Element, PACK>;

constexpr bool NARROW = sizeof(Number) == 4;
constexpr int LANES = NARROW ? 16 : 8;  // of the CPU's vectors

// exp for arguments of at most 0, by the operations of kernels/native/layers/vector_exp.h.
__device__ inline float exp_of(float x) {
    const float shifted = x * 1.44269504088896340736f + 12582912.0f, n = shifted - 12582912.0f;
    const int power = __float_as_int(shifted) - __float_as_int(12582912.0f);
    const float r = x - n * 0.693359375f - n * -2.12194440e-4f;
    float y = r * 1.9875691500e-4f + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    y = y * __int_as_float(static_cast<int>(static_cast<unsigned>(power + 127) << 23));
    return x < -87.3f ? 0.0f : y;
}
__device__ inline double exp_of(double x) {
    const double shifted = x * 1.44269504088896340736 + 6755399441055744.0, n = shifted - 6755399441055744.0;
    const long long power = __double_as_longlong(shifted) - __double_as_longlong(6755399441055744.0);
    const double r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6, rr = r * r;
    const double p = r * ((rr * 1.26177193074810590878e-4 + 3.02994407707441961300e-2) * rr + 9.99999999999999999910e-1);
    const double q =
        ((rr * 3.00198505138664455042e-6 + 2.52448340349684104192e-3) * rr + 2.27265548208155028766e-1) * rr + 2.0;
    double y = 1.0 + 2.0 * p / (q - p);
    y = y * __longlong_as_double(static_cast<long long>(static_cast<unsigned long long>(power + 1023) << 52));
    return x < -708.3 ? 0.0 : y;
}

struct Block {
    const int *begins, *ends, *sources, *dst_pos;
    int num_edges;
    __device__ int own(int i) const { return dst_pos ? dst_pos[i] : i; }
};

// Calls take(edge row, source) for the edges of destination i in order, and for its own term.
template <class Take>
__device__ inline void each_edge(const Block& block, int i, const Take& take) {
    for (int e = block.begins[i]; e < block.ends[i]; ++e) take(static_cast<long long>(e), block.sources[e]);
    take(static_cast<long long>(block.num_edges) + i, block.own(i));
}

// Factors of weights after the softmax: what dropout leaves, and the data's weights of edges, which own terms lack. A null pointer stands for 1.
struct After {
    const unsigned char* mask;
    Number scale;
    const float* weight;
    long long num_edges;
    __device__ bool any() const { return mask || weight; }
    __device__ Number times(Number value, long long e, long long at) const {
        if (mask) value *= mask[at] * scale;
        if (weight && e < num_edges) value *= static_cast<Number>(weight[e]);
        return value;
    }
};

// alpha: [nnz + num_dst, heads]. factors: the same times mask and weights; alpha itself where there are none.
extern "C" __global__ void __launch_bounds__(256)
weigh(const int* begins, const int* ends, const int* sources, const int* dst_pos, int num_edges, const Element* left,
      const Element* right, Number slope, const unsigned char* mask, Number scale, const float* weight, Number* alpha,
      Number* factors, int num_dst, int heads) {
    const Block block{begins, ends, sources, dst_pos, num_edges};
    const After after{mask, scale, weight, num_edges};
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < static_cast<long long>(num_dst) * heads;
         at += step) {
        const int i = static_cast<int>(at / heads), h = static_cast<int>(at % heads);
        const Number mine = widen(right[at]);
        Number most = NARROW ? Number(-__int_as_float(0x7F800000)) : Number(-__longlong_as_double(0x7FF0000000000000ll));
        each_edge(block, i, [&](long long e, int s) {
            const Number raw = widen(left[static_cast<long long>(s) * heads + h]) + mine;
            const Number score = raw > Number(0) ? raw : raw * slope;
            alpha[e * heads + h] = score;
            most = score > most ? score : most;
        });
        Number sum = 0;
        each_edge(block, i, [&](long long e, int) {
            const Number power = exp_of(alpha[e * heads + h] - most);
            alpha[e * heads + h] = power;
            sum += power;
        });
        const Number inverse = Number(1) / sum;
        each_edge(block, i, [&](long long e, int) {
            const Number share = alpha[e * heads + h] * inverse;
            alpha[e * heads + h] = share;
            if (after.any()) factors[e * heads + h] = after.times(share, e, e * heads + h);
        });
    }
}

// Forward: out[i] = sum over the edges of destination i of factor * z[source]. Backward: out[s] = sum over the edges of source s of factor *
// grad[destination]; `places` says where they stand in the block, and `own` which destination the source is, -1 for none.
extern "C" __global__ void __launch_bounds__(256)
spread(const int* begins, const int* ends, const int* rows, const int* places, const int* own, int num_own, int num_edges,
       const Number* factors, const Columns* input, Columns* out, long long num_rows, int packs, int heads, int depth) {
    const int lane = threadIdx.x % TEAM;
    const long long teams = static_cast<long long>(gridDim.x) * (blockDim.x / TEAM);
    for (long long r = static_cast<long long>(blockIdx.x) * (blockDim.x / TEAM) + threadIdx.x / TEAM; r < num_rows; r += teams) {
        const int begin = begins[r], end = ends[r], mine = own ? own[r] : r < num_own ? static_cast<int>(r) : -1;
        for (int pack = lane; pack < packs; pack += TEAM) {
            Number sum[PACK] = {};
            const auto add = [&](long long place, int row) {
                const Columns loaded = input[static_cast<long long>(row) * packs + pack];
                const Number* factor = factors + place * heads;
#pragma unroll
                for (int c = 0; c < PACK; ++c) sum[c] += widen(loaded.element[c]) * factor[(pack * PACK + c) / depth];
            };
            for (int e = begin; e < end; ++e) add(BACKWARD ? places[e] : e, rows[e]);
            if (mine >= 0) add(num_edges + (BACKWARD ? static_cast<long long>(mine) : r), mine);
            Columns result;
#pragma unroll
            for (int c = 0; c < PACK; ++c) result.element[c] = Narrowed<Element>::from(sum[c]);
            out[r * packs + pack] = result;
        }
    }
}

// factors = alpha times mask and weights, of all edges and own terms.
extern "C" __global__ void __launch_bounds__(256)
weaken(const Number* alpha, const unsigned char* mask, Number scale, const float* weight, int num_edges, int heads, Number* factors,
       long long count) {
    const After after{mask, scale, weight, num_edges};
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += step)
        factors[at] = after.times(alpha[at], at / heads, at);
}

// Product of two rows over the columns of head h, by LANES lanes that begin at a multiple of LANES: lane by lane as the CPU's vectors do it,
// and folded by halves. Valid in the first lane.
__device__ inline Number head_dot(const Element* a, const Element* b, int h, int depth, int width, int lane) {
    if (width < LANES) {
        Number dot = 0;
        for (int c = h * depth; c < (h + 1) * depth; ++c) dot += widen(a[c]) * widen(b[c]);
        return dot;
    }
    const int from = h * depth, to = from + depth, whole = depth / LANES;
    Number sum = 0;
    for (int v = 0; v < whole; ++v) {
        const int c = from + v * LANES + lane;
        sum += widen(a[c]) * widen(b[c]);
    }
    if (depth % LANES) {
        const int start = whole ? to - LANES : from + whole * LANES < width - LANES ? from + whole * LANES : width - LANES;
        const int c = start + lane;
        sum += c >= from + whole * LANES && c < to ? widen(a[c]) * widen(b[c]) : Number(0);
    }
    const unsigned team = (LANES == 32 ? 0xFFFFFFFFu : (1u << LANES) - 1) << (threadIdx.x % 32 / LANES * LANES);
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2) sum += __shfl_down_sync(team, sum, apart, LANES);
    return sum;
}

// products[edge row, head] = <grad[destination], z[source]> of every edge of every source, own terms included. A team of LANES for a source.
extern "C" __global__ void __launch_bounds__(256)
multiply(const int* t_begins, const int* t_edges, const int* t_dsts, const int* own, int num_own, int num_edges, const Element* grad,
         const Element* z, Number* products, int num_src, int width, int heads, int depth) {
    const int lane = threadIdx.x % LANES;
    const long long teams = static_cast<long long>(gridDim.x) * (blockDim.x / LANES);
    for (long long s = static_cast<long long>(blockIdx.x) * (blockDim.x / LANES) + threadIdx.x / LANES; s < num_src; s += teams) {
        const int mine = own ? own[s] : s < num_own ? static_cast<int>(s) : -1;
        const auto product = [&](long long place, int i) {
            for (int h = 0; h < heads; ++h) {
                const Number dot = head_dot(grad + static_cast<long long>(i) * width, z + s * width, h, depth, width, lane);
                if (lane == 0) products[place * heads + h] = dot;
            }
        };
        for (int t = t_begins[s]; t < t_begins[s + 1]; ++t) product(t_edges[t], t_dsts[t]);
        if (mine >= 0) product(num_edges + static_cast<long long>(mine), mine);
    }
}

// products: in, the inner products; out, the gradients of the scores.
extern "C" __global__ void __launch_bounds__(256)
grade(const int* begins, const int* ends, const int* sources, const int* dst_pos, int num_edges, const Element* left,
      const Element* right, Number slope, const unsigned char* mask, Number scale, const float* weight, const Number* alpha,
      Number* products, Element* of_right, int num_dst, int heads) {
    const Block block{begins, ends, sources, dst_pos, num_edges};
    const After after{mask, scale, weight, num_edges};
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < static_cast<long long>(num_dst) * heads;
         at += step) {
        const int i = static_cast<int>(at / heads), h = static_cast<int>(at % heads);
        const Number mine = widen(right[at]);
        Number mean = 0, total = 0;
        each_edge(block, i, [&](long long e, int) {
            const Number product = after.times(products[e * heads + h], e, e * heads + h);
            if (after.any()) products[e * heads + h] = product;
            mean += alpha[e * heads + h] * product;
        });
        each_edge(block, i, [&](long long e, int s) {
            const Number raw = widen(left[static_cast<long long>(s) * heads + h]) + mine;
            const Number full = alpha[e * heads + h] * (products[e * heads + h] - mean);
            const Number found = raw > Number(0) ? full : full * slope;
            products[e * heads + h] = found;
            total += found;
        });
        of_right[at] = Narrowed<Element>::from(total);
    }
}

// of_left[s, h] = sum of the gradients of the scores of the edges of source s.
extern "C" __global__ void __launch_bounds__(256)
pull(const int* t_begins, const int* t_edges, const int* own, int num_own, int num_edges, const Number* of_scores, Element* of_left,
     int num_src, int heads) {
    const long long step = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long at = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; at < static_cast<long long>(num_src) * heads;
         at += step) {
        const int s = static_cast<int>(at / heads), h = static_cast<int>(at % heads);
        const int mine = own ? own[s] : s < num_own ? s : -1;
        Number total = 0;
        for (int t = t_begins[s]; t < t_begins[s + 1]; ++t) total += of_scores[static_cast<long long>(t_edges[t]) * heads + h];
        if (mine >= 0) total += of_scores[(num_edges + static_cast<long long>(mine)) * heads + h];
        of_left[at] = Narrowed<Element>::from(total);
    }
}
