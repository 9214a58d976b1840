// Neighbours as of a time; kernels/temporal/sampler.py is the front door and states the rule.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/array.h"
#include "base/buffer.h"
#include "sampling/sampling.h"

namespace graphmill {

// The graph that is sampled, and how. The sampler reads the arrays as long as it lives.
template <class Id>
struct TemporalSetup {
    Array<const int64_t> indptr;
    Array<const Id> indices;
    Array<const double> edge_times;  // ascending in each run of one relation of a row
    std::vector<int64_t> fanouts;    // from the seeds outwards; -1 takes all
    bool replace;
    bool recent;    // the latest edges in place of drawn ones
    double window;  // an edge is at most so much older than the seed; infinite for no bound
    Optional<const uint8_t> edge_types;             // the relation of every edge
    std::vector<std::vector<int64_t>> by_relation;  // of each fan-out, the numbers of each relation; empty where they are alike
    Optional<const uint32_t> table;  // alias tables, where neighbours have weights
    Optional<const int32_t> support;
    int empty;  // what a node gets whose edges as of a time have no weight, a number of EmptyRow
};

template <class Id>
struct TimedBatch {
    Buffer<Id> src_ids;
    Buffer<double> src_times;
    std::vector<SampledBlock> blocks;
};

// One thread uses it at a time.
template <class Id>
class TemporalSampler {
  public:
    virtual ~TemporalSampler() = default;

    // The seeds, pairs of a node and a time, are in range and finite.
    virtual TimedBatch<Id> sample(uint64_t batch_key, Array<const Id> seeds, Array<const double> times, Transposes transposes,
                                  bool positions) = 0;

    // From now on the pages of a layer's rows are asked for before they are read.
    virtual void read_ahead() = 0;

    virtual int64_t scratch_bytes() const = 0;
};

// Throws InputError if the rows of the graph do not follow each other.
template <class Id>
std::unique_ptr<TemporalSampler<Id>> make_temporal_sampler(const TemporalSetup<Id>& setup);

}  // namespace graphmill
