// The kernels of this room as bind.cpp sees them; the modules of kernels/chunks/ are their front doors and say what they compute.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/array.h"
#include "base/buffer.h"

namespace graphmill {

// One pass over the nodes in `order`, in that of ids if it is empty. Returns how many nodes it moved.
template <class Id>
int64_t ldg(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> order, Array<const int64_t> weights,
            Array<const int64_t> capacity, int num_parts, Array<int32_t> part_of);

// Adds up edges between parts: counts[i * num_parts + j] edges lead from part j to part i.
template <class Id>
void cut_matrix(Array<const int64_t> indptr, Array<const Id> indices, Array<const int32_t> part_of, int num_parts,
                Array<int64_t> counts);

// How many parts have an in-edge from, or hold, each node: the sum over nodes.
template <class Id>
int64_t replicas(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> by_part, Array<const int64_t> bounds);

// Moves each node in turn to the cluster that most of its in-neighbours' edges come from, if that stays within `most` by weight; `roots`
// are the nodes without in-neighbours. Returns how many nodes it moved.
template <class Id>
int64_t join_clusters(Array<const int64_t> indptr, Array<const Id> indices, Optional<const int64_t> edge_weights,
                      Array<const int64_t> weights, int64_t most, Array<const bool> roots, Array<Id> cluster_of, Array<int64_t> sizes);

// Adds to counts[row] the edges between clusters that a row of the graph of clusters has, repeats included; with `both` reverses as well.
template <class Id>
void count_edges(Array<const int64_t> indptr, Array<const Id> indices, Array<const int32_t> cluster_of, bool both,
                 Array<int64_t> counts);

// Writes these edges, each to the range of rows that it belongs to: the next edge of range i goes to place next[i]. An edge is a word,
// row << 32 | column, and a second one, its weight, where edges have weights.
template <class Id>
void scatter_edges(Array<const int64_t> indptr, Array<const Id> indices, Optional<const int64_t> edge_weights,
                   Array<const int32_t> cluster_of, bool both, Array<const int32_t> range_of, Array<int64_t> next,
                   Array<int64_t> edges);

// Sorts the edges of a range, whose first row is `first`, and adds to `distinct` how many columns each of its rows has.
void sort_edges(Array<int64_t> edges, bool weighted, int64_t first, Array<int64_t> distinct);

// Adds up the weights of equal edges, which are sorted; an edge without a weight counts 1.
void merge_edges(Array<const int64_t> edges, bool weighted, Array<int32_t> indices, Array<int64_t> weights);

// (xadj i64[v + 1], adjacency i32[..]): symmetrised, each neighbour once, ascending, without self-loops. Numbers are places in `nodes`.
template <class Id>
std::pair<Buffer<int64_t>, Buffer<int32_t>> part_graph(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> nodes,
                                                       Array<const int32_t> local, int threads);

Buffer<int32_t> reverse_cuthill_mckee(Array<const int64_t> xadj, Array<const int32_t> adjacency);

// The permutation k of columns that maximises the sum of gain[j, k[j]].
Buffer<int64_t> assign_most(Array<const int64_t> gains);

// Improves `order` in place; returns the evaluations that are left.
int64_t improve_path(Array<const int64_t> overlap, Array<int64_t> order, int64_t work);

// What V_+ru changes by, among some nodes, when `step` and each later step exchange their chunks of one part: others[s] is the union of
// the other parts' sets in step s, own[k] a set of the part, chosen[s] that of step s.
Buffer<int64_t> swap_changes(Array<const uint64_t> others, Array<const uint64_t> own, Array<const int64_t> chosen, int64_t step,
                             int threads);

template <class Id>
void neighbour_sets(Array<const int64_t> indptr, Array<const Id> indices, Array<const Id> node_ids, Array<const int64_t> ptr,
                    bool self_term, int threads, Array<uint64_t> out);

// Of all pairs of a set of `left` and one of `right`, the nodes in both: i64[a * b].
Buffer<int64_t> set_overlaps(Array<const uint64_t> left, Array<const uint64_t> right, int threads);

// The same sets, one after the other, over those nodes alone that two or more of them hold.
Buffer<uint64_t> shared_sets(Array<const uint64_t> bits, int threads);

// Unions of sets over the same nodes, from lists of the sets that hold each node, into zeros: out[j] has the sets c with column_of[c] = j.
template <class Id>
void listed_unions(Array<const int64_t> indptr, Array<const Id> numbers, Array<const int32_t> column_of, Array<uint64_t> out);

Buffer<int64_t> set_sizes(Array<const uint64_t> bits, int threads);

// The nodes in both of sets j and j - 1, for j = 1, 2, ...
Buffer<int64_t> chain_overlaps(Array<const uint64_t> bits, int threads);

// out[j] = union of sets rows[i, j] over i; a row of -1 is the empty set.
void set_unions(Array<const uint64_t> bits, Array<const int64_t> rows, int threads, Array<uint64_t> out);

// Copies that a device fetches in a step from the peer that comes `hop` devices after it.
struct Fetch {
    int hop;
    Buffer<int32_t> peer_rows, own_rows;
};

// What one device does in a step.
template <class Id>
struct DeviceStep {
    Buffer<int32_t> start, end, indices, dst_pos, load_rows;  // dst_pos is never made without self_term
    Buffer<Id> src_ids, load_ids;
    std::vector<Fetch> fetch;
    int64_t num_transition = 0;
};

// Makes the steps of a pass in turn; the arrays that it is made of must live as long.
template <class Id>
class StepMaker {
  public:
    StepMaker(Array<const int64_t> indptr, Array<const Id> indices, Array<const int32_t> part_of, int num_parts, bool self_term,
              int threads);
    ~StepMaker();

    // Makes the next step, in which device i computes the destinations dst[i].
    std::vector<DeviceStep<Id>> next(const std::vector<Array<const Id>>& dst);

  private:
    class Buffers;
    std::unique_ptr<Buffers> buffers_;
};

}  // namespace graphmill
