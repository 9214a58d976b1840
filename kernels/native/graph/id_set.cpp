// The different ids at both ends of edges; see kernels/graph/id_set.py.
#include "graph/id_set.h"

#include <algorithm>
#include <limits>
#include <string>

#include "base/input_error.h"
#include "base/parallel.h"

namespace graphmill {
namespace {

constexpr int64_t NEAR = int64_t{1} << 28;  // ids from 0 to here are bits
constexpr int64_t AHEAD = 16;               // ids between the prefetch of a place and its use

uint64_t scattered(int64_t id) {
    uint64_t word = static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15u;
    return word ^ word >> 29;
}

constexpr int DIGIT_BITS = 11;  // of a sort by digits: the places of a digit's values stay in the nearest cache

// An id above the least one, and where it was given.
template <class Key>
struct GivenId {
    Key key;
    int32_t at;
};

// Sorts by counting, a digit at a time from the last one on.
template <class Key>
std::pair<Buffer<int64_t>, Buffer<int32_t>> sorted_places(Array<const int64_t> ids, int64_t least, uint64_t span) {
    const int64_t size = ids.size();
    Buffer<GivenId<Key>> from(size), to(size);
    for (int64_t n = 0; n < size; ++n) {
        const uint64_t above = static_cast<uint64_t>(ids[n]) - static_cast<uint64_t>(least);
        from[n] = {static_cast<Key>(above), static_cast<int32_t>(n)};
    }
    for (int shift = 0; shift < 64 && span >> shift; shift += DIGIT_BITS) {
        const auto digit = [shift](const GivenId<Key>& given) { return given.key >> shift & ((1 << DIGIT_BITS) - 1); };
        int32_t next[1 << DIGIT_BITS] = {};
        for (int64_t n = 0; n < size; ++n) ++next[digit(from[n])];
        for (int32_t value = 0, before = 0; value < 1 << DIGIT_BITS; ++value) before += std::exchange(next[value], before);
        for (int64_t n = 0; n < size; ++n) to[next[digit(from[n])]++] = from[n];
        std::swap(from, to);
    }
    Buffer<int64_t> found(size);
    Buffer<int32_t> places(size);
    int64_t count = 0;
    for (int64_t n = 0; n < size; ++n) {
        if (n == 0 || from[n].key != from[n - 1].key) found[count++] = static_cast<int64_t>(static_cast<uint64_t>(least) + from[n].key);
        places[from[n].at] = static_cast<int32_t>(count - 1);
    }
    found.shrink(count);
    return {std::move(found), std::move(places)};
}

}  // namespace

std::pair<Buffer<int64_t>, Buffer<int32_t>> unique_places(Array<const int64_t> ids) {
    const int64_t size = ids.size();
    if (size > std::numeric_limits<int32_t>::max()) {
        throw InputError(std::to_string(size) + " ids at once", "give at most 2,147,483,647 ids");
    }
    if (size == 0) return {Buffer<int64_t>(0), Buffer<int32_t>(0)};
    const auto [least, most] = std::minmax_element(ids.data(), ids.data() + size);
    const uint64_t span = static_cast<uint64_t>(*most) - static_cast<uint64_t>(*least);
    return span >> 32 ? sorted_places<uint64_t>(ids, *least, span) : sorted_places<uint32_t>(ids, *least, span);
}

IdSet::IdSet() : bits_{std::make_unique<Bits>(NEAR / 64), std::make_unique<Bits>(NEAR / 64)} {}

void IdSet::add(Array<const int64_t> ids, int side) {
    const int64_t* given = ids.data();
    const int64_t size = ids.size();
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

std::pair<Buffer<int64_t>, int64_t> IdSet::sorted() {
    std::vector<int64_t> far;
    far.reserve(num_far_);
    int64_t both = 0;
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
    Buffer<int64_t> found(near + static_cast<int64_t>(far.size()));
    const auto positive = std::lower_bound(far.begin(), far.end(), int64_t{0});
    int64_t* out = std::copy(far.begin(), positive, found.data());
    for (int64_t word = 0; word < top_; ++word) {
        for (uint64_t left = first[word] | second[word]; left; left &= left - 1) {
            *out++ = word * 64 + __builtin_ctzll(left);
        }
    }
    std::copy(positive, far.end(), out);
    return {std::move(found), both};
}

void IdSet::add_far(int64_t id, uint8_t side) {
    if (3 * (num_far_ + 1) > 2 * static_cast<int64_t>(ids_.size())) grow();
    const size_t slot = place(id);
    num_far_ += !sides_[slot];
    ids_[slot] = id;
    sides_[slot] |= side;
}

size_t IdSet::place(int64_t id) const {
    const size_t mask = ids_.size() - 1;
    size_t slot = scattered(id) & mask;
    while (sides_[slot] && ids_[slot] != id) slot = (slot + 1) & mask;
    return slot;
}

void IdSet::grow() {
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

template <class Place>
IdIndex<Place>::IdIndex(Array<const int64_t> ids) : ids_(ids.data()), size_(ids.size()) {
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

template <class Place>
Buffer<int64_t> IdIndex<Place>::look_up(Array<const int64_t> given, int threads) const {
    Buffer<int64_t> found(given.size());
    const int64_t* from = given.data();
    int64_t* out = found.data();
    parallel_for(given.size(), 1 << 14, threads, [&](int64_t begin, int64_t end) {
        for (int64_t e = begin; e < end; ++e) {
            if (e + AHEAD < end) __builtin_prefetch(&places_[scattered(from[e + AHEAD]) & mask_]);
            out[e] = place(from[e]);
        }
    });
    return found;
}

template <class Place>
int64_t IdIndex<Place>::place(int64_t id) const {
    for (size_t slot = scattered(id) & mask_;; slot = (slot + 1) & mask_) {
        const Place found = places_[slot];
        if (found < 0 || ids_[found] == id) return found;
    }
}

template class IdIndex<int32_t>;
template class IdIndex<int64_t>;

}  // namespace graphmill
