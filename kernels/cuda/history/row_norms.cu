// Norms of rows in a fixed order of additions; see kernels/history/row_norms.py.
//
// A warp adds the squares of one row, each lane those of its own columns, in float64. Then the upper half of the lanes is folded onto the lower
// one, five times. Sums of lanes that are folded onto nobody are not used.

#ifndef ELEMENT
#define ELEMENT float
#endif

extern "C" __global__ void __launch_bounds__(256) row_norms(const ELEMENT* rows, long long num_rows, int width, float* out) {
    const int lane = threadIdx.x % 32;
    const long long warps = static_cast<long long>(gridDim.x) * (blockDim.x / 32);
    for (long long i = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32; i < num_rows; i += warps) {
        double sum = 0;
        for (int c = lane; c < width; c += 32) {
            const double value = rows[i * width + c];
            sum += value * value;
        }
        for (int half = 16; half; half /= 2) sum += __shfl_down_sync(0xFFFFFFFFu, sum, half);
        if (lane == 0) out[i] = static_cast<float>(sqrt(sum));
    }
}
