// Neighbours in proportion to weights; see kernels/sampling/weighted.py for the rule and kernels/sampling/weighted_cuda.py for the launches.
// Tables are read at random, so they are not checked as a whole: what does not fit its row is noted as a fault before it is followed, and
// the batch, which is refused at its end, goes on with positions of the row.
#include "sampling/layer.cuh"

constexpr u64 WHOLE = 1ull << 32;  // the mass of one place of a row

// An entry of an alias table is one word: the threshold in its lower half, the alias in the upper one.
__device__ inline unsigned threshold_of(u64 entry) { return static_cast<unsigned>(entry); }
__device__ inline unsigned alias_of(u64 entry) { return static_cast<unsigned>(entry >> 32); }

// The position that 64 random bits mean; it may be none of the row if the table is damaged.
__device__ inline unsigned pick(u64 bits, u64 degree, const u64* row) {
    const unsigned place = static_cast<unsigned>(graphmill::bounded(bits, degree)), rest = static_cast<unsigned>((bits * degree) >> 32);
    const u64 entry = row[place];
    return rest < threshold_of(entry) ? place : alias_of(entry);
}

__device__ inline int most_draws(int taken) { return 4 * taken + 16; }

// Rows whose neighbours with weight are all taken, without drawing.
__device__ inline bool is_whole(i64 weighty, int fanout, bool replace) { return fanout < 0 || (!replace && weighty <= fanout); }

// Neighbours of a node with weight, no more than it has.
__device__ inline i64 weighty_of(const i64* indptr, const int* support, i64 node) {
    const i64 degree = indptr[node + 1] - indptr[node];
    return !support || support[node] > degree ? degree : support[node] < 0 ? 0 : support[node];
}

// taken[i] = edges that destination i gives up; 0 behind the last one, up to `most` rows. support: neighbours with weight, null = all.
extern "C" __global__ void __launch_bounds__(256)
count_weighty(const i64* indptr, const int* support, const ID* nodes, i64* state, int fanout, int replace, int most, int* taken) {
    i64 counted = 0;
    for (i64 i = thread_number(); i < most; i += num_threads()) {
        const i64 edges = i < state[NODES] ? num_taken(weighty_of(indptr, support, nodes[i]), fanout, replace) : 0;
        if (i < state[NODES] && support && support[nodes[i]] != weighty_of(indptr, support, nodes[i])) note(state, BAD_TABLE, nodes[i]);
        taken[i] = static_cast<int>(edges);
        counted += edges;
    }
    if (fanout < 0) want(state, counted);
}

// A thread draws the positions of a destination, ascending, until repeats were rejected for too long. found[i]: how many there are.
extern "C" __global__ void __launch_bounds__(256)
draw_weighted(const i64* indptr, const u64* table, const int* support, const ID* nodes, const u64* layer_key, int fanout, int replace,
              const int* ends, unsigned* chosen, int* found, i64* state) {
    for (i64 i = thread_number(); i < state[DESTINATIONS]; i += num_threads()) {
        const i64 node = nodes[i], first = indptr[node], degree = indptr[node + 1] - first;
        const int begin = i ? ends[i - 1] : 0, taken = ends[i] - begin;
        const u64 row_key = graphmill::absorb(*layer_key, static_cast<u64>(node));
        unsigned* row = chosen + begin;
        int count = 0;
        i64 reads = 0;
        if (is_whole(weighty_of(indptr, support, node), fanout, replace)) {
            for (; reads < degree && count < taken; ++reads) {
                if (threshold_of(table[first + reads]) != 0) row[count++] = static_cast<unsigned>(reads);
            }
            if (count < taken) note(state, BAD_TABLE, node);
            while (count < taken) row[count++] = 0;
        } else {
            const int most = replace ? taken : most_draws(taken);
            for (; reads < most && count < taken; ++reads) {
                unsigned position = pick(graphmill::draw(row_key, reads), degree, table + first);
                if (position >= degree) {
                    note(state, BAD_TABLE, node);
                    position = 0;
                }
                const int at = replace ? count : first_from(row, count, position);
                if (at < count && row[at] == position) continue;
                insert(row, count++, position);
            }
        }
        found[i] = count;
        if (reads) atomicAdd(reinterpret_cast<u64*>(state + READS), static_cast<u64>(reads));
    }
}

// Writes the masses of a row, a warp together.
__device__ inline void add_masses(const u64* row, i64 degree, int lane, u64* mass, i64 node, i64* state) {
    for (i64 at = lane; at < degree; at += 32) mass[at] = threshold_of(row[at]);
    __syncwarp();
    for (i64 at = lane; at < degree; at += 32) {
        if (alias_of(row[at]) < degree) atomicAdd(mass + alias_of(row[at]), WHOLE - threshold_of(row[at]));
        else note(state, BAD_TABLE, node);
    }
    __syncwarp();
}

// A warp at a time draws what draw_weighted left: from the masses that are left, by adding them up. Every lane has a piece of the row.
// masses: `longest` words for each warp.
extern "C" __global__ void __launch_bounds__(256)
draw_rest(const i64* indptr, const u64* table, const ID* nodes, const u64* layer_key, const int* ends, i64 longest, u64* masses,
          unsigned* chosen, const int* found, i64* state) {
    const int lane = threadIdx.x % 32;
    u64* mass = masses + thread_number() / 32 * longest;
    for (i64 i = thread_number() / 32; i < state[DESTINATIONS]; i += num_threads() / 32) {
        const int begin = i ? ends[i - 1] : 0, taken = ends[i] - begin;
        if (found[i] == taken) continue;
        const i64 node = nodes[i], first = indptr[node], degree = indptr[node + 1] - first;
        const u64 row_key = graphmill::absorb(*layer_key, static_cast<u64>(node));
        unsigned* row = chosen + begin;
        add_masses(table + first, degree, lane, mass, node, state);
        for (int k = lane; k < found[i]; k += 32) mass[row[k]] = 0;
        __syncwarp();
        const i64 piece = (degree + 31) / 32, low = lane * piece < degree ? lane * piece : degree;
        const i64 high = low + piece < degree ? low + piece : degree;
        u64 own = 0;
        for (i64 at = low; at < high; ++at) own += mass[at];
        u64 left = own;  // of all lanes together
        for (int apart = 16; apart > 0; apart /= 2) left += __shfl_xor_sync(0xFFFFFFFFu, left, apart);
        for (int count = found[i], counter = most_draws(taken); count < taken; ++count, ++counter) {
            if (left == 0) {  // fewer neighbours have weight than `support` says
                if (lane == 0) note(state, BAD_TABLE, node);
                for (int k = count + lane; k < taken; k += 32) row[k] = 0;
                break;
            }
            u64 below = graphmill::bounded(graphmill::draw(row_key, counter), left);
            int holder = 0;
            for (u64 sum = __shfl_sync(0xFFFFFFFFu, own, 0); below >= sum; sum = __shfl_sync(0xFFFFFFFFu, own, holder)) {
                below -= sum;
                ++holder;
            }
            u64 gone = 0;
            if (lane == holder) {
                i64 at = low;
                while (below >= mass[at]) below -= mass[at++];
                gone = mass[at];
                own -= gone;
                mass[at] = 0;
                insert(row, count, static_cast<unsigned>(at));
            }
            left -= __shfl_sync(0xFFFFFFFFu, gone, holder);
            __syncwarp();
        }
        if (lane == 0) atomicAdd(reinterpret_cast<u64*>(state + READS), static_cast<u64>(degree));
        __syncwarp();
    }
}

// A thread takes the edges of a destination at the chosen positions, and their shares. mass: words as long as chosen, for rows taken whole.
extern "C" __global__ void __launch_bounds__(256)
take_weighted(const i64* indptr, const ID* indices, i64 num_nodes, const u64* table, const int* support, const ID* nodes, int fanout,
              int replace, const u64* asked, const int* ends, const unsigned* chosen, u64* mass, ID* reached, int* rows, i64* positions,
              float* share, u64* map, i64* state) {
    const u64 stamp = asked[STAMP];
    for (i64 i = thread_number(); i < state[DESTINATIONS]; i += num_threads()) {
        const i64 node = nodes[i], first = indptr[node], degree = indptr[node + 1] - first;
        const int begin = i ? ends[i - 1] : 0, taken = ends[i] - begin;
        const unsigned* row = chosen + begin;
        for (int k = 0; k < taken; ++k) {
            const i64 position = first + row[k], e = begin + k;
            const ID source = source_at(indices, position, num_nodes, state);
            reached[e] = source;
            rows[e] = static_cast<int>(i);
            if (positions) positions[e] = position;
            share[e] = 1.0f / static_cast<float>(taken);
            mass[e] = 0;
            reach(source, e, stamp, map);
        }
        if (!taken || !is_whole(weighty_of(indptr, support, node), fanout, replace)) continue;
        for (i64 at = 0; at < degree; ++at) {  // a neighbour without weight has no mass, so masses of the taken ones are all
            const u64 entry = table[first + at];
            const int own = first_from(row, taken, static_cast<unsigned>(at)), other = first_from(row, taken, alias_of(entry));
            if ((threshold_of(entry) && own == taken) || other == taken) {
                note(state, BAD_TABLE, node);
                break;
            }
            if (threshold_of(entry)) mass[begin + own] += threshold_of(entry);
            mass[begin + other] += WHOLE - threshold_of(entry);
        }
        const double total = static_cast<double>(degree) * static_cast<double>(WHOLE);
        for (int k = 0; k < taken; ++k) share[begin + k] = static_cast<float>(static_cast<double>(mass[begin + k]) / total);
        atomicAdd(reinterpret_cast<u64*>(state + READS), static_cast<u64>(degree));
    }
}
