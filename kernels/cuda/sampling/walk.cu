// Importance neighbours by random walks; see kernels/sampling/walk.py for the rule and kernels/sampling/walk_cuda.py for the launches.
#include "sampling/layer.cuh"

// A thread walks a path. visits: `paths * length` nodes for each node so far, path after path.
extern "C" __global__ void __launch_bounds__(256)
walk(const i64* indptr, const ID* indices, i64 num_nodes, const ID* nodes, const u64* layer_key, int paths, int length, u64 restart,
     ID* visits, i64* state) {
    for (i64 p = thread_number(); p < state[NODES] * paths; p += num_threads()) {
        const i64 own = nodes[p / paths], own_first = indptr[own], own_degree = indptr[own + 1] - own_first;
        const u64 node_key = graphmill::absorb(*layer_key, static_cast<u64>(own));
        i64 at = own;
        for (int step = 0; step < length; ++step) {
            const u64 number = static_cast<u64>(p % paths * length + step);
            if (step > 0 && (graphmill::draw(node_key, 2 * number) >> 32) < restart) at = own;
            i64 first = indptr[at], degree = indptr[at + 1] - first;
            if (degree == 0) {  // a dead end: the path starts again
                first = own_first;
                degree = own_degree;
            }
            at = own;
            if (degree) {
                const i64 chosen = static_cast<i64>(graphmill::bounded(graphmill::draw(node_key, 2 * number + 1), degree));
                at = source_at(indices, first + chosen, num_nodes, state);
            }
            visits[p * length + step] = static_cast<ID>(at);
        }
    }
}

// counts[n] = how often the node of visit n is visited from the same destination; 0 for the destination itself, and but for the first visit.
extern "C" __global__ void __launch_bounds__(256)
count_visits(const ID* nodes, const ID* visits, int per_node, const i64* state, int* counts) {
    for (i64 n = thread_number(); n < state[NODES] * per_node; n += num_threads()) {
        const i64 i = n / per_node, begin = i * per_node;
        const ID node = visits[n];
        int count = node != nodes[i];
        for (i64 m = begin; count && m < n; ++m) {
            if (visits[m] == node) count = 0;
        }
        for (i64 m = n + 1; count && m < begin + per_node; ++m) count += visits[m] == node;
        counts[n] = count;
    }
}

// A thread ranks the visits of a destination: order[i * keep ..] = numbers of the first visits of the most visited nodes, the most visited
// first, of equals that which was visited first. Their counts become negative. taken[i]: how many there are; 0 behind the last destination.
extern "C" __global__ void __launch_bounds__(256)
rank_visits(int per_node, int keep, const i64* state, int most, int* counts, int* order, int* taken) {
    for (i64 i = thread_number(); i < most; i += num_threads()) {
        int* own = counts + i * per_node;
        int ranked = 0;
        for (; i < state[NODES] && ranked < keep; ++ranked) {
            int best = 0;
            for (int n = 1; n < per_node; ++n) {
                if (own[n] > own[best]) best = n;
            }
            if (own[best] <= 0) break;
            order[i * keep + ranked] = best;
            own[best] = -own[best];
        }
        taken[i] = ranked;
    }
}

// A thread takes the ranked nodes of a destination as its sources, and their shares of these visits.
extern "C" __global__ void __launch_bounds__(256)
take_visited(const ID* visits, const int* counts, const int* order, int per_node, int keep, const u64* asked, const int* ends, ID* reached,
             int* rows, float* share, u64* map, const i64* state) {
    const u64 stamp = asked[STAMP];
    for (i64 i = thread_number(); i < state[DESTINATIONS]; i += num_threads()) {
        const int begin = i ? ends[i - 1] : 0, taken = ends[i] - begin;
        int total = 0;
        for (int k = 0; k < taken; ++k) total -= counts[i * per_node + order[i * keep + k]];
        for (int k = 0; k < taken; ++k) {
            const i64 n = i * per_node + order[i * keep + k], e = begin + k;
            reached[e] = visits[n];
            rows[e] = static_cast<int>(i);
            share[e] = static_cast<float>(-counts[n]) / static_cast<float>(total);
            reach(visits[n], e, stamp, map);
        }
    }
}
