// The edges of an R-MAT graph by their numbers, for generate.cpp and for kernels/cuda/graph/generate.cu; see kernels/graph/generate.py.
#pragma once

#include "base/rng.h"
#include "graph/permutation.h"

namespace graphmill {

// Each level of the recursion decides one bit of both ends with 16 random bits; a draw serves four levels. The thresholds of these bits are
// `top_left`, `top` and `all_but_last`.
class Rmat {
  public:
    GRAPHMILL_INLINE Rmat(uint64_t key, const Permutation& names, uint64_t num_nodes, int scale, unsigned top_left, unsigned top,
                          unsigned all_but_last)
        : key_(key), names_(names), num_nodes_(num_nodes), scale_(scale), top_left_(top_left), top_(top), all_but_last_(all_but_last) {}

    template <class Id>
    GRAPHMILL_INLINE void edge(uint64_t number, Id& source, Id& target) const {
        const uint64_t edge_key = absorb(key_, number);
        uint64_t bits = 0, row = 0, column = 0;
        for (int level = 0; level < scale_; ++level) {
            bits = level % 4 ? bits >> 16 : draw(edge_key, level / 4);
            const unsigned lane = bits & 0xFFFF;
            row = row << 1 | uint64_t(lane >= top_);
            column = column << 1 | uint64_t((lane >= top_left_) & ((lane < top_) | (lane >= all_but_last_)));
        }
        source = place<Id>(row);
        target = place<Id>(column);
    }

  private:
    // corner * num_nodes >> scale, whose product has more than 64 bits.
    template <class Id>
    GRAPHMILL_INLINE Id place(uint64_t corner) const {
        const uint64_t rank = scale_ ? bounded(corner << (64 - scale_), num_nodes_) : 0;
        return static_cast<Id>(names_.forward(rank));
    }

    uint64_t key_;
    Permutation names_;
    uint64_t num_nodes_;
    int scale_;
    unsigned top_left_, top_, all_but_last_;
};

}  // namespace graphmill
