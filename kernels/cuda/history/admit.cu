// Who enters the history of embeddings and who leaves it, and lookups; see kernels/history/admit.py for the rule and
// kernels/history/admit_cuda.py for the order of the launches.
//
// Entries of one node that store to one place store one value, by an atomic exchange, so the order of threads does not matter.

#ifndef ID
#define ID int
#endif

typedef long long i64;

constexpr int NONE = -1;  // and below it: marks of entries, -2 - entry
constexpr int HEAD = 0, HIGH = 1;  // of a ring

__device__ inline i64 thread_number() { return static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline i64 num_threads() { return static_cast<i64>(gridDim.x) * blockDim.x; }

// A number's bits as an integer of the same order; -0 counts as 0.
__device__ inline int ordered(float value) {
    const int bits = __float_as_int(value + 0.0f);
    return bits < 0 ? bits ^ 0x7FFFFFFF : bits;
}

// Slots of nodes, -1 where `now` may not use them. slot_of: of one layer.
extern "C" __global__ void __launch_bounds__(256)
look_up(const int* slot_of, const i64* born, const ID* ids, int count, i64 now, i64 t_stale, int* out) {
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        const int slot = slot_of[ids[i]];
        const i64 age = slot < 0 ? 0 : now - born[slot];
        out[i] = age > 0 && age <= t_stale ? slot : NONE;
    }
}

// Places of nodes' feature rows, -1 for those whose bytes embeddings have reached. ring: head and end of the slots that were taken so far;
// features_end, stride, row_bytes: bytes of the arena, of an embedding and of a feature row.
extern "C" __global__ void __launch_bounds__(256)
look_up_features(const int* place_of, const ID* ids, int count, const i64* ring, i64 features_end, i64 stride, i64 row_bytes, int num_features, int* out) {
    const i64 first = num_features - (features_end - ring[HIGH] * stride) / row_bytes;
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        const int place = place_of[ids[i]];
        out[i] = place >= first ? place : NONE;
    }
}

// Writes the entries of one list from place `first` on. saved may be null. NaN norms count as infinite.
extern "C" __global__ void __launch_bounds__(256)
enter(const ID* ids, const float* norms, const float* saved, int count, int first, i64 offset, i64* where, int* keys, float* saves, int* computed) {
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        const float norm = norms[i];
        where[first + i] = offset + ids[i];
        keys[first + i] = ordered(norm >= 0 ? norm : __int_as_float(0x7F800000));
        saves[first + i] = saved ? saved[i] : 0.0f;
        computed[first + i] = 1;
    }
}

extern "C" __global__ void __launch_bounds__(256) clear_cached(const int* cached, int count, int first, int* computed) {
    for (i64 k = thread_number(); k < count; k += num_threads()) computed[first + cached[k]] = 0;
}

// Of a layer whose entries begin at `first`, the `keep` with the smallest norms are stable. order may be null where all or none are.
extern "C" __global__ void __launch_bounds__(256) mark_stable(const int* order, int count, int keep, int first, int* stable) {
    for (i64 k = thread_number(); k < count; k += num_threads()) stable[first + (order ? order[k] : k)] = k < keep;
}

extern "C" __global__ void __launch_bounds__(256) read_slots(const int* slot_of, const i64* where, int count, int* before) {
    for (i64 i = thread_number(); i < count; i += num_threads()) before[i] = slot_of[where[i]];
}

// Takes what the history holds from unstable entries, and from those that were computed again.
extern "C" __global__ void __launch_bounds__(256)
evict(const int* before, const i64* where, const int* stable, const int* computed, int count, i64 num_nodes, int* slot_of, i64* owner, int* evicted) {
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        if (before[i] < 0 || (stable[i] && !computed[i])) continue;
        if (!computed[i]) atomicAdd(evicted + where[i] / num_nodes, 1);
        atomicExch(reinterpret_cast<unsigned long long*>(owner + before[i]), ~0ull);
        atomicExch(slot_of + where[i], NONE);
    }
}

extern "C" __global__ void __launch_bounds__(256)
find_candidates(const int* stable, const int* computed, const float* saved, float least, int count, int* enters) {
    for (i64 i = thread_number(); i < count; i += num_threads()) enters[i] = stable[i] && computed[i] && saved[i] >= least;
}

// The last of a node's candidates has the least mark.
extern "C" __global__ void __launch_bounds__(256) mark_last(const int* enters, const i64* where, int count, int* slot_of) {
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        if (enters[i]) atomicMin(slot_of + where[i], static_cast<int>(-2 - i));
    }
}

extern "C" __global__ void __launch_bounds__(256) bar_unstable(const int* stable, const i64* where, int count, int* slot_of) {
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        if (!stable[i]) atomicExch(slot_of + where[i], NONE);
    }
}

extern "C" __global__ void __launch_bounds__(256)
keep_last(const int* enters, const i64* where, int count, const int* slot_of, int* left) {
    for (i64 i = thread_number(); i < count; i += num_threads()) left[i] = enters[i] && slot_of[where[i]] == static_cast<int>(-2 - i);
}

extern "C" __global__ void __launch_bounds__(256) clear_marks(const int* enters, const i64* where, int count, int* slot_of) {
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        if (enters[i]) atomicExch(slot_of + where[i], NONE);
    }
}

// What orders candidates by falling saved access, and all other entries behind them.
extern "C" __global__ void __launch_bounds__(256) order_candidates(const int* enters, const float* saved, int count, int* keys) {
    for (i64 i = thread_number(); i < count; i += num_threads()) keys[i] = enters[i] ? ~ordered(saved[i]) : 0x7FFFFFFF;
}

// As many of the first candidates as there are slots. sums: running sums of the flags; room: number of slots, null for `num_slots`.
extern "C" __global__ void __launch_bounds__(256)
choose(const int* order, const int* sums, int count, const int* room, int num_slots, int* chosen) {
    const int slots = room ? *room : num_slots, wanted = sums[count - 1];
    for (i64 k = thread_number(); k < count && k < slots && k < wanted; k += num_threads()) chosen[order[k]] = 1;
}

// Gives the entries that are left slots of `free`, or successive slots of the ring where that is null; whoever owned one loses it.
// targets: the slot of each entry, -1 for those that stay outside. anew: whether the head goes back to the first slot.
extern "C" __global__ void __launch_bounds__(256)
take_slots(const int* enters, const int* sums, const i64* where, int count, i64 num_nodes, const int* free, const i64* ring, int anew, i64 num_slots,
           i64 now, int* slot_of, i64* owner, i64* born, int* targets, int* admitted) {
    const i64 head = anew ? 0 : ring[HEAD];
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        if (!enters[i]) {
            targets[i] = NONE;
            continue;
        }
        const int k = sums[i] - 1;
        i64 slot = free ? free[k] : head + k;
        if (slot >= num_slots) slot -= num_slots;
        if (owner[slot] >= 0) slot_of[owner[slot]] = NONE;
        owner[slot] = where[i];
        born[slot] = now;
        targets[i] = static_cast<int>(slot);
        atomicAdd(admitted + where[i] / num_nodes, 1);
    }
}

extern "C" __global__ void __launch_bounds__(256) name_slots(const int* targets, const i64* where, int count, int* slot_of) {
    for (i64 i = thread_number(); i < count; i += num_threads()) {
        if (targets[i] >= 0) slot_of[where[i]] = targets[i];
    }
}

// Moves the head behind the slots that were taken, and the end as far as they reach; counts the entries without a slot. sums: of all
// candidates; taken: of those that have one. Both are null where there are no entries.
extern "C" __global__ void __launch_bounds__(256)
close_update(const int* sums, const int* taken, int count, const int* free, int anew, i64 num_slots, i64* ring, int* overflow) {
    if (thread_number() > 0) return;
    const i64 num_taken = count ? taken[count - 1] : 0;
    const i64 head = anew ? 0 : ring[HEAD], reached = head + num_taken;
    i64 end = reached < num_slots ? reached : num_slots;
    if (free) end = num_taken ? free[num_taken - 1] + 1 : 0;
    if (end > ring[HIGH]) ring[HIGH] = end;
    ring[HEAD] = free || !num_slots ? head : reached % num_slots;
    *overflow = count ? sums[count - 1] - taken[count - 1] : 0;
}
