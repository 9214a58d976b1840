// Sets of ids, and the places of ids in a list; see kernels/graph/id_set.py.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/array.h"
#include "base/buffer.h"
#include "base/zeroed_array.h"

namespace graphmill {

// The different ids at both ends of edges.
class IdSet {
  public:
    IdSet();

    void add(Array<const int64_t> ids, int side);

    // Returns the ids in ascending order and the number of those at both ends; the set ends with it.
    std::pair<Buffer<int64_t>, int64_t> sorted();

  private:
    using Bits = ZeroedArray<uint64_t>;

    void add_far(int64_t id, uint8_t side);
    size_t place(int64_t id) const;
    void grow();

    std::unique_ptr<Bits> bits_[2];
    int64_t top_ = 0, num_far_ = 0;
    std::vector<int64_t> ids_;  // open addressing; free where sides_ is 0
    std::vector<uint8_t> sides_;
};

// The different ids in ascending order, and the place of each given one among them.
std::pair<Buffer<int64_t>, Buffer<int32_t>> unique_places(Array<const int64_t> ids);

// Where each id stands in an ascending list, by a table of positions. The list outlives it.
template <class Place>
class IdIndex {
  public:
    explicit IdIndex(Array<const int64_t> ids);

    Buffer<int64_t> look_up(Array<const int64_t> given, int threads) const;

  private:
    int64_t place(int64_t id) const;

    const int64_t* ids_;
    int64_t size_;
    size_t mask_ = 0;
    Buffer<Place> places_;
};

}  // namespace graphmill
