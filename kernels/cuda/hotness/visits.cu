// Counts the batch of every node of a list; see kernels/hotness/visits.py. A list names a node once, so no two threads add to one count.

#ifndef ID
#define ID int
#endif

extern "C" __global__ void __launch_bounds__(256) count_visits(const ID* node_ids, long long count, int* visits) {
    const long long threads = static_cast<long long>(gridDim.x) * blockDim.x;
    for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += threads) {
        visits[node_ids[i]] += 1;
    }
}
