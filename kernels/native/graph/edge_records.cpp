// Records of edges on their way through the sort of a spool; see kernels/graph/edge_records.py.
#include "graph/graph.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"

namespace graphmill {
namespace {

template <class Id>
struct Ends {
    Id dst, src;
};

template <class Id>
Ends<Id> ends_at(const char* record) {
    Ends<Id> ends;
    std::memcpy(&ends, record, sizeof ends);
    return ends;
}

// Deals records, and their reverses, to ranges of destinations. `WIDTH` is the bytes of a record if they are known, else 0.
template <class Id, int64_t WIDTH>
struct Dealer {
    const char* records;
    int64_t size, width;
    const uint16_t* range_of;  // by destination >> shift
    int shift;
    bool reverse, drop_loops;
    int type_step;  // what the reverse of an edge adds to its type, the last byte

    int64_t bytes() const { return WIDTH ? WIDTH : width; }

    // Counts the records of each range; returns the number of self-loops.
    int64_t count(std::vector<int64_t>& counts) const {
        int64_t loops = 0;
        for (int64_t e = 0; e < size; ++e) {
            const auto ends = ends_at<Id>(records + e * bytes());
            const bool loop = ends.dst == ends.src;
            loops += loop;
            if (!loop || !drop_loops) ++counts[range_of[ends.dst >> shift]];
            if (reverse && !loop) ++counts[range_of[ends.src >> shift]];
        }
        return loops;
    }

    void deal(std::vector<char*>& cursor) const {
        for (int64_t e = 0; e < size; ++e) {
            const char* record = records + e * bytes();
            const auto ends = ends_at<Id>(record);
            const bool loop = ends.dst == ends.src;
            if (!loop || !drop_loops) {
                char*& out = cursor[range_of[ends.dst >> shift]];
                std::memcpy(out, record, bytes());
                out += bytes();
            }
            if (reverse && !loop) {
                char*& out = cursor[range_of[ends.src >> shift]];
                const Ends<Id> reversed{ends.src, ends.dst};
                std::memcpy(out, &reversed, sizeof reversed);
                std::memcpy(out + sizeof reversed, record + sizeof reversed, bytes() - sizeof reversed);
                if (type_step) out[bytes() - 1] = static_cast<char>(out[bytes() - 1] + type_step);
                out += bytes();
            }
        }
    }
};

template <class Id, int64_t WIDTH>
Dealt dealt(const Dealer<Id, WIDTH>& dealer, int64_t num_ranges) {
    std::vector<int64_t> counts(num_ranges, 0);
    const int64_t loops = dealer.count(counts);
    int64_t total = 0;
    for (int64_t count : counts) total += count;
    Buffer<uint8_t> out(total * dealer.bytes());
    std::vector<char*> cursor(num_ranges);
    char* at = reinterpret_cast<char*>(out.data());
    for (int64_t range = 0; range < num_ranges; ++range) {
        cursor[range] = at;
        at += counts[range] * dealer.bytes();
    }
    dealer.deal(cursor);
    return {std::move(out), std::move(counts), loops};
}

// Sorts the bare edges of a range of destinations by (destination, source), and merges equal ones.
template <class Id>
class RangeSort {
  public:
    RangeSort(const Ends<Id>* edges, int64_t size, int64_t low, int64_t num_rows, bool merge, int threads)
        : edges_(edges), size_(size), low_(low), num_rows_(num_rows), merge_(merge), threads_(threads), lengths(num_rows) {
        // As in csc.cpp: a bucket's rows fit a core's cache, and few enough buckets that writing to all at once does not miss.
        while ((num_rows_ - 1) >> shift_ >= MAX_BUCKETS) ++shift_;
        num_buckets_ = num_rows_ > 0 ? ((num_rows_ - 1) >> shift_) + 1 : 0;
        pieces_ = std::max<int64_t>(1, std::min<int64_t>(size_ / 65536, threads_));
    }

    void sort() {
        scatter();
        std::vector<int64_t> kept(num_buckets_ + 1, 0), repeats(num_buckets_, 0);
        parallel_for(num_buckets_, 1, threads_, [&](int64_t begin, int64_t end) {
            for (int64_t bucket = begin; bucket < end; ++bucket) {
                kept[bucket + 1] = sort_bucket(bucket, repeats[bucket]);
            }
        });
        for (int64_t bucket = 0; bucket < num_buckets_; ++bucket) {
            num_duplicates += repeats[bucket];
            kept[bucket + 1] += kept[bucket];
        }
        sources = Buffer<Id>(kept[num_buckets_]);
        parallel_for(num_buckets_, 1, threads_, [&](int64_t begin, int64_t end) {
            for (int64_t bucket = begin; bucket < end; ++bucket) {
                const Id* from = sorted(bucket);
                std::copy(from, from + (kept[bucket + 1] - kept[bucket]), sources.data() + kept[bucket]);
            }
        });
    }

    Buffer<Id> sources;
    int64_t num_duplicates = 0;

  private:
    static constexpr int64_t MAX_BUCKETS = 1024;

    void scatter() {
        std::vector<int64_t> cursor(num_buckets_ * pieces_, 0);
        parallel_for(pieces_, 1, threads_, [&](int64_t first, int64_t last) {
            for (int64_t piece = first; piece < last; ++piece) {
                std::vector<int64_t> mine(num_buckets_, 0);
                for (int64_t e = begin_of(piece); e < begin_of(piece + 1); ++e) ++mine[(edges_[e].dst - low_) >> shift_];
                for (int64_t bucket = 0; bucket < num_buckets_; ++bucket) cursor[bucket * pieces_ + piece] = mine[bucket];
            }
        });
        bounds_.assign(num_buckets_ + 1, size_);
        int64_t total = 0;
        for (int64_t slot = 0; slot < num_buckets_ * pieces_; ++slot) {
            if (slot % pieces_ == 0) bounds_[slot / pieces_] = total;
            total += std::exchange(cursor[slot], total);
        }
        pairs_ = Buffer<Ends<Id>>(size_);
        parallel_for(pieces_, 1, threads_, [&](int64_t first, int64_t last) {
            for (int64_t piece = first; piece < last; ++piece) {
                std::vector<int64_t> mine(num_buckets_);
                for (int64_t bucket = 0; bucket < num_buckets_; ++bucket) mine[bucket] = cursor[bucket * pieces_ + piece];
                for (int64_t e = begin_of(piece); e < begin_of(piece + 1); ++e) {
                    pairs_[mine[(edges_[e].dst - low_) >> shift_]++] = edges_[e];
                }
            }
        });
    }

    int64_t begin_of(int64_t piece) const { return size_ * piece / pieces_; }

    // The memory of a bucket's pairs, once they are no longer needed, holds its sorted sources.
    Id* sorted(int64_t bucket) { return reinterpret_cast<Id*>(pairs_.data() + bounds_[bucket]); }

    // Returns the number of edges that are kept, and counts those that repeat the one before.
    int64_t sort_bucket(int64_t bucket, int64_t& repeats) {
        const int64_t first = bounds_[bucket], size = bounds_[bucket + 1] - first;
        const int64_t low = bucket << shift_, high = std::min(num_rows_, (bucket + 1) << shift_);
        std::vector<int64_t> place(high - low + 1, 0);
        const Ends<Id>* pairs = pairs_.data() + first;
        for (int64_t e = 0; e < size; ++e) ++place[pairs[e].dst - low_ - low + 1];
        for (size_t row = 1; row < place.size(); ++row) place[row] += place[row - 1];
        std::vector<int64_t> cursor(place.begin(), place.end() - 1);
        Buffer<Id> rows(size);
        for (int64_t e = 0; e < size; ++e) rows[cursor[pairs[e].dst - low_ - low]++] = pairs[e].src;
        Id *begin_out = sorted(bucket), *out = begin_out;
        for (int64_t v = low; v < high; ++v) {
            Id *begin = rows.data() + place[v - low], *end = rows.data() + place[v - low + 1];
            std::sort(begin, end);
            Id* before = out;
            for (const Id* each = begin; each < end; ++each) {
                const bool repeated = each > begin && *each == each[-1];
                repeats += repeated;
                if (!repeated || !merge_) *out++ = *each;
            }
            lengths[v] = out - before;
        }
        return out - begin_out;
    }

    const Ends<Id>* edges_;
    int64_t size_, low_, num_rows_;
    bool merge_;
    int threads_, shift_ = 10;
    int64_t num_buckets_ = 0, pieces_ = 1;
    std::vector<int64_t> bounds_;
    Buffer<Ends<Id>> pairs_;

  public:
    Buffer<int64_t> lengths;
};

}  // namespace

template <class Id>
Dealt deal_records(Array<const uint8_t> records, int64_t width, Array<const uint16_t> range_of, int shift, int64_t num_ranges,
                   bool reverse, bool drop_loops, int type_step) {
    const auto* bytes = reinterpret_cast<const char*>(records.data());
    const int64_t size = records.size() / width;
    if (width == 2 * static_cast<int64_t>(sizeof(Id))) {
        return dealt(Dealer<Id, 2 * sizeof(Id)>{bytes, size, width, range_of.data(), shift, reverse, drop_loops, type_step}, num_ranges);
    }
    return dealt(Dealer<Id, 0>{bytes, size, width, range_of.data(), shift, reverse, drop_loops, type_step}, num_ranges);
}

template <class Id>
SortedEnds<Id> sort_ends(Array<const Id> ends, int64_t low, int64_t num_rows, bool merge, int threads) {
    const auto* edges = reinterpret_cast<const Ends<Id>*>(ends.data());
    RangeSort<Id> sort(edges, ends.size() / 2, low, num_rows, merge, threads);
    sort.sort();
    return {std::move(sort.sources), std::move(sort.lengths), sort.num_duplicates};
}

template decltype(deal_records<int32_t>) deal_records<int32_t>;
template decltype(deal_records<int64_t>) deal_records<int64_t>;
template decltype(sort_ends<int32_t>) sort_ends<int32_t>;
template decltype(sort_ends<int64_t>) sort_ends<int64_t>;

}  // namespace graphmill
