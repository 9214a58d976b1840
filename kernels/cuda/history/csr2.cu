// Pruning of mini-batches in CSR2 form; see kernels/history/csr2.py for the rule and kernels/history/csr2_cuda.py for the order of the launches.
//
// Flags are counted by running sums between the launches: a row's or source's new number is the sum up to it, less one. Several threads mark one
// source, by an atomic exchange with one value; every other place is written by one thread.

#ifndef ID
#define ID int
#endif

constexpr int KEPT = 0, USED = 1, EDGES = 2, MOVED = 3;  // of a block's sizes; MOVED: destinations that are not the first sources

__device__ inline long long thread_number() { return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline long long num_threads() { return static_cast<long long>(gridDim.x) * blockDim.x; }
__device__ inline long long warp_number() { return thread_number() / 32; }
__device__ inline long long num_warps() { return num_threads() / 32; }

// Row i of the block below is needed where the block above reads it (used; null for the seeds' block) and the history does not hold it.
extern "C" __global__ void __launch_bounds__(256)
need_rows(const int* used, const int* slots, const int* begins, const int* ends, int num_dst, int* needed, int* degrees) {
    for (long long i = thread_number(); i < num_dst; i += num_threads()) {
        const bool wanted = !used || (used[i] && slots[i] < 0);
        needed[i] = wanted;
        degrees[i] = wanted ? ends[i] - begins[i] : 0;
    }
}

// A warp marks what one row reads, its own place included.
extern "C" __global__ void __launch_bounds__(256)
mark_sources(const int* begins, const int* ends, const int* indices, const int* dst_pos, const int* needed, int num_dst, int* used) {
    const int lane = threadIdx.x % 32;
    for (long long i = warp_number(); i < num_dst; i += num_warps()) {
        if (!needed[i]) continue;
        if (lane == 0) atomicExch(used + (dst_pos ? dst_pos[i] : static_cast<int>(i)), 1);
        for (int e = begins[i] + lane; e < ends[i]; e += 32) atomicExch(used + indices[e], 1);
    }
}

// The sums' last elements; and how many rows are not at the place of their number. sizes[MOVED] begins as 0.
extern "C" __global__ void __launch_bounds__(256)
measure(const int* needed, const int* dst_pos, const int* rows, const int* edges, int num_dst, const int* places, int num_src, int* sizes) {
    for (long long i = thread_number(); i < num_dst; i += num_threads()) {
        const int own = dst_pos ? dst_pos[i] : static_cast<int>(i);
        if (needed[i] && places[own] != rows[i]) atomicAdd(sizes + MOVED, 1);
    }
    if (thread_number() > 0) return;
    sizes[KEPT] = num_dst ? rows[num_dst - 1] : 0;
    sizes[USED] = num_src ? places[num_src - 1] : 0;
    sizes[EDGES] = num_dst ? edges[num_dst - 1] : 0;
}

// A warp writes one row that is left: its ends, what belongs to it, and its edges. Arrays that are null are left out.
extern "C" __global__ void __launch_bounds__(256)
fill_rows(const int* begins, const int* ends, const int* indices, const int* dst_pos, const float* self_weight, const float* weight,
          const unsigned char* edge_type, const long long* edge_id, const float* share, const int* needed, const int* rows, const int* edges,
          const int* places, int num_dst, int* new_begins, int* new_ends, int* new_indices, int* new_dst_pos, float* new_self_weight,
          float* new_weight, unsigned char* new_edge_type, long long* new_edge_id, float* new_share) {
    const int lane = threadIdx.x % 32;
    for (long long i = warp_number(); i < num_dst; i += num_warps()) {
        if (!needed[i]) continue;
        const int row = rows[i] - 1, first = begins[i], count = ends[i] - first, target = edges[i] - count;
        if (lane == 0) {
            new_begins[row] = target;
            new_ends[row] = edges[i];
            if (new_dst_pos) new_dst_pos[row] = places[dst_pos ? dst_pos[i] : static_cast<int>(i)] - 1;
            if (self_weight) new_self_weight[row] = self_weight[i];
        }
        for (int e = lane; e < count; e += 32) {
            new_indices[target + e] = places[indices[first + e]] - 1;
            if (weight) new_weight[target + e] = weight[first + e];
            if (edge_type) new_edge_type[target + e] = edge_type[first + e];
            if (edge_id) new_edge_id[target + e] = edge_id[first + e];
            if (share) new_share[target + e] = share[first + e];
        }
    }
}

// A thread writes one source that is left. below: running sums of the rows that are needed in the block below; null, as slots, where no
// source is in the history. origin is null but for the lowest block.
extern "C" __global__ void __launch_bounds__(256)
fill_sources(const ID* src_ids, const int* used, const int* places, const int* slots, const int* below, int num_src, ID* new_ids, int* origin,
             int* computed, int* hist_pos, int* hist_slot) {
    for (long long s = thread_number(); s < num_src; s += num_threads()) {
        if (!used[s]) continue;
        const int place = places[s] - 1;
        new_ids[place] = src_ids[s];
        if (origin) origin[place] = static_cast<int>(s);
        if (!slots) continue;
        if (slots[s] < 0) {
            computed[below[s] - 1] = place;
        } else {
            hist_pos[place - below[s]] = place;
            hist_slot[place - below[s]] = slots[s];
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) remove_in_edges(const int* begins, int* ends, const int* which, int count) {
    for (long long k = thread_number(); k < count; k += num_threads()) ends[which[k]] = begins[which[k]];
}
