// The edge weights of a graph convolution and of an unbiased sum; see kernels/blocks/coefficients.py. In float64, rounded once.
#ifndef ID
#define ID int
#endif

// A warp for a destination. weights of removed edges are 0 before. share: of each edge in the mean of its row, or null. gcn: else the factors of a sum, and no own weights.
extern "C" __global__ void __launch_bounds__(256)
coefficients(const int* begins, const int* ends, const int* sources, const int* dst_pos, const ID* src_ids, const int* in_degree,
             const int* out_degree, int gcn, int sampled, int num_dst, const float* share, float* weights, float* own_weights) {
    const long long step = static_cast<long long>(gridDim.x) * (blockDim.x / 32);
    for (long long i = static_cast<long long>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32; i < num_dst; i += step) {
        const ID node = src_ids[dst_pos ? dst_pos[i] : i];
        const int begin = begins[i], end = ends[i], lane = threadIdx.x % 32;
        if (!gcn) {
            const float factor = static_cast<float>(static_cast<double>(in_degree[node]) / static_cast<double>(end > begin ? end - begin : 1));
            for (int e = begin + lane; e < end; e += 32) {
                weights[e] = share ? static_cast<float>(in_degree[node]) * share[e] : factor;
            }
            continue;
        }
        const double mine = 1.0 / sqrt(in_degree[node] + 1.0);
        if (lane == 0) own_weights[i] = static_cast<float>(mine * (1.0 / sqrt(out_degree[node] + 1.0)));
        const double rescaled = sampled && !share ? mine * (static_cast<double>(in_degree[node]) / static_cast<double>(end - begin)) : mine;
        for (int e = begin + lane; e < end; e += 32) {
            const float weight = static_cast<float>(rescaled * (1.0 / sqrt(out_degree[src_ids[sources[e]]] + 1.0)));
            weights[e] = share ? weight * (static_cast<float>(in_degree[node]) * share[e]) : weight;
        }
    }
}
