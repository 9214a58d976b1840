// The different ids at both ends of edges; see kernels/graph/id_set.py.
#include <algorithm>
#include <memory>
#include <vector>

#include "base/arrays.h"
#include "base/parallel.h"
#include "base/zeroed_array.h"

namespace graphmill {
namespace {

constexpr int64_t NEAR = int64_t{1} << 28;  // ids from 0 to here are bits

uint64_t scattered(int64_t id) {
    uint64_t word = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u;
    return word ^ word >> 29;
}

class IdSet {
  public:
    IdSet() : bits_{std::make_unique<Bits>(NEAR / 64), std::make_unique<Bits>(NEAR / 64)} {}

    void add(Array<int64_t> ids, int side) {
        const int64_t* given = ids.data();
        const int64_t size = ids.size();
        py::gil_scoped_release unlocked;
        uint64_t* bits = bits_[side]->data();
        for (int64_t e = 0; e < size; ++e) {
            const auto id = static_cast<uint64_t>(given[e]);
            if (id < static_cast<uint64_t>(NEAR)) {
                uint64_t& word = bits[id >> 6];
                const uint64_t bit = uint64_t{1} << (id & 63);
                if (!(word & bit)) word |= bit;
                top_ = std::max(top_, static_cast<int64_t>(id >> 6) + 1);
            } else {
                add_far(given[e], static_cast<uint8_t>(1 << side));
            }
        }
    }

    // Returns (ids in ascending order, number of those at both ends).
    py::tuple sorted() {
        Buffer<int64_t> found;
        int64_t both = 0;
        {
            py::gil_scoped_release unlocked;
            std::vector<int64_t> far;
            far.reserve(num_far_);
            for (size_t slot = 0; slot < sides_.size(); ++slot) {
                if (sides_[slot]) far.push_back(ids_[slot]);
                both += sides_[slot] == 3;
            }
            std::vector<int64_t>().swap(ids_);
            std::vector<uint8_t>().swap(sides_);
            std::sort(far.begin(), far.end());
            const uint64_t *first = bits_[0]->data(), *second = bits_[1]->data();
            int64_t near = 0;
            for (int64_t word = 0; word < top_; ++word) {
                near += __builtin_popcountll(first[word] | second[word]);
                both += __builtin_popcountll(first[word] & second[word]);
            }
            found = Buffer<int64_t>(near + static_cast<int64_t>(far.size()));
            const auto positive = std::lower_bound(far.begin(), far.end(), int64_t{0});
            int64_t* out = std::copy(far.begin(), positive, found.data());
            for (int64_t word = 0; word < top_; ++word) {
                for (uint64_t left = first[word] | second[word]; left; left &= left - 1) {
                    *out++ = word * 64 + __builtin_ctzll(left);
                }
            }
            std::copy(positive, far.end(), out);
        }
        return py::make_tuple(found.release(), both);
    }

  private:
    using Bits = ZeroedArray<uint64_t>;

    void add_far(int64_t id, uint8_t side) {
        if (3 * (num_far_ + 1) > 2 * static_cast<int64_t>(ids_.size())) grow();
        const size_t slot = place(id);
        num_far_ += !sides_[slot];
        ids_[slot] = id;
        sides_[slot] |= side;
    }

    size_t place(int64_t id) const {
        const size_t mask = ids_.size() - 1;
        size_t slot = scattered(id) & mask;
        while (sides_[slot] && ids_[slot] != id) slot = (slot + 1) & mask;
        return slot;
    }

    void grow() {
        std::vector<int64_t> ids(std::max<size_t>(1024, 2 * ids_.size()));
        std::vector<uint8_t> sides(ids.size(), 0);
        ids.swap(ids_);
        sides.swap(sides_);
        for (size_t slot = 0; slot < ids.size(); ++slot) {
            if (!sides[slot]) continue;
            const size_t to = place(ids[slot]);
            ids_[to] = ids[slot];
            sides_[to] = sides[slot];
        }
    }

    std::unique_ptr<Bits> bits_[2];
    int64_t top_ = 0, num_far_ = 0;
    std::vector<int64_t> ids_;  // open addressing; free where sides_ is 0
    std::vector<uint8_t> sides_;
};

// Where each id stands in an ascending list, by a table of positions.
template <class Place>
class IdIndex {
  public:
    explicit IdIndex(Array<int64_t> ids) : kept_(ids), ids_(kept_.data()), size_(kept_.size()) {
        py::gil_scoped_release unlocked;
        size_t slots = 1024;
        while (static_cast<int64_t>(slots) < size_ + size_ / 2) slots *= 2;
        places_ = Buffer<Place>(static_cast<int64_t>(slots));
        std::fill(places_.data(), places_.data() + slots, Place{-1});
        mask_ = slots - 1;
        for (int64_t place = 0; place < size_; ++place) {
            size_t slot = scattered(ids_[place]) & mask_;
            while (places_[slot] >= 0) slot = (slot + 1) & mask_;
            places_[slot] = static_cast<Place>(place);
        }
    }

    Array<int64_t> look_up(Array<int64_t> given, int threads) const {
        Array<int64_t> found(given.size());
        const int64_t* from = given.data();
        int64_t* out = found.mutable_data();
        const int64_t size = given.size();
        {
            py::gil_scoped_release unlocked;
            parallel_for(size, 1 << 14, threads, [&](int64_t begin, int64_t end) {
                for (int64_t e = begin; e < end; ++e) {
                    if (e + AHEAD < end) __builtin_prefetch(&places_[scattered(from[e + AHEAD]) & mask_]);
                    out[e] = place(from[e]);
                }
            });
        }
        return found;
    }

  private:
    static constexpr int64_t AHEAD = 16;

    int64_t place(int64_t id) const {
        for (size_t slot = scattered(id) & mask_;; slot = (slot + 1) & mask_) {
            const Place found = places_[slot];
            if (found < 0 || ids_[found] == id) return found;
        }
    }

    Array<int64_t> kept_;
    const int64_t* ids_;
    int64_t size_;
    size_t mask_ = 0;
    Buffer<Place> places_;
};

template <class Place>
void bind_index(py::module_& m, const char* name) {
    py::class_<IdIndex<Place>>(m, name)
        .def(py::init<Array<int64_t>>(), py::arg("ids").noconvert())
        .def("look_up", &IdIndex<Place>::look_up, py::arg("given").noconvert(), py::arg("threads"));
}

}  // namespace

void bind_id_set(py::module_& m) {
    py::class_<IdSet>(m, "IdSet")
        .def(py::init<>())
        .def("add", &IdSet::add, py::arg("ids").noconvert(), py::arg("side"))
        .def("sorted", &IdSet::sorted);
    bind_index<int32_t>(m, "IdIndex32");
    bind_index<int64_t>(m, "IdIndex64");
}

}  // namespace graphmill
