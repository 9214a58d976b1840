// Rows of a segment's disk cache, one copy for all the batches that can share its page; see kernels/disk_cache/copies.py.
#include "disk_cache/disk_cache.h"

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "disk_cache/row_uses.h"

namespace graphmill {
namespace {

constexpr int64_t PIECE = 1024;     // rows that a thread takes at once
constexpr int64_t FILLED = 4096;    // rows that pages are filled from by themselves
constexpr int32_t NOT_CACHED = -1;  // a use whose row is packed with its batch
constexpr int32_t SHARED = -3;      // a use of a copy that is just being placed
constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull;

// A row that a batch still wants, and the later uses of it that have no place: `count` of them from `first` of a list.
struct Wanted {
    uint64_t near, far;  // place of those uses in the Gray code: the next 64 batches, the 64 after them
    int64_t use, first;
    int32_t row, count;

    bool operator<(const Wanted& other) const {
        if (near != other.near) return near < other.near;
        return far != other.far ? far < other.far : row < other.row;
    }
};

uint64_t gray_rank(uint64_t bits) {
    for (int shift = 1; shift < 64; shift *= 2) bits ^= bits >> shift;
    return bits;
}

class CopyPlacer {
  public:
    CopyPlacer(RowUses& uses, int64_t num_batches, int64_t row_bytes, int64_t page_bytes, int64_t least_bytes, int64_t least_range,
             int64_t window, int threads)
        : uses_(uses), num_batches_(num_batches), words_((num_batches + 63) / 64), row_bytes_(row_bytes),
          page_bytes_(page_bytes), least_bytes_(least_bytes), least_range_(least_range), window_(window), threads_(threads) {}

    // Places the rows that a batch still wants, behind those that are there.
    void place(int32_t batch, std::vector<Wanted>& wanted) {
        find_later(batch, wanted);
        sort(wanted);
        if (window_ > 1) fill_pages(wanted);
        accept(wanted);
        keep_ranges();
        share(wanted);
        settle(wanted);
    }

    std::vector<int32_t> rows;  // of the file

  private:
    // Two sorted halves are enough: merging more parts one after the other takes as long as they save.
    void sort(std::vector<Wanted>& wanted) const {
        const int64_t count = wanted.size(), half = std::max(PIECE, (count + 1) / 2);
        const auto begin = wanted.begin();
        parallel_for(count, half, std::min(threads_, 2), [&](int64_t low, int64_t high) { std::sort(begin + low, begin + high); });
        if (threads_ > 1 && count > half) std::inplace_merge(begin, begin + half, wanted.end());
    }

    void find_later(int32_t batch, std::vector<Wanted>& wanted) {
        int64_t most = 0;
        for (Wanted& each : wanted) {
            each.first = most;
            most += uses_.ptr[each.row + 1] - each.use - 1;
        }
        later_batch_.resize(most);
        later_use_.resize(most);
        parallel_for(wanted.size(), PIECE, threads_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                Wanted& each = wanted[i];
                uint64_t bits[2] = {0, 0};
                int64_t next = each.first;
                for (int64_t use = each.use + 1; use < uses_.ptr[each.row + 1]; ++use) {
                    if (uses_.place[use] != OPEN) continue;
                    later_use_[next] = use;
                    later_batch_[next++] = uses_.batch[use];
                    const int32_t later = uses_.batch[use] - batch - 1;
                    if (later < 128) bits[later / 64] |= uint64_t{1} << (63 - later % 64);
                }
                each.count = static_cast<int32_t>(next - each.first);
                each.near = gray_rank(bits[0]);
                each.far = gray_rank(bits[1]) ^ (each.near & 1 ? ~uint64_t{0} : 0);
            }
        });
    }

    int64_t start_of(int64_t i) const { return (static_cast<int64_t>(rows.size()) + i) * row_bytes_; }

    // From the next `window` rows of the order a page takes the one whose batches it has most, by the sum of their squares.
    void fill_pages(std::vector<Wanted>& wanted) const {
        const int64_t count = wanted.size();
        parallel_for((count + FILLED - 1) / FILLED, 1, threads_, [&](int64_t begin, int64_t end) {
            std::vector<int64_t> have(num_batches_);
            std::vector<Wanted> given;
            std::vector<int32_t> near;
            for (int64_t place = begin * FILLED; place < std::min(count, end * FILLED); ++place) {
                if (place % FILLED == 0) {
                    given.assign(wanted.begin() + place, wanted.begin() + std::min(count, place + FILLED));
                    near.resize(std::min<int64_t>(window_, given.size()));
                    for (size_t w = 0; w < near.size(); ++w) near[w] = static_cast<int32_t>(w);
                }
                size_t best = 0;
                if (place % FILLED == 0 || start_of(place) / page_bytes_ != start_of(place - 1) / page_bytes_) {
                    std::fill(have.begin(), have.end(), 0);
                } else {
                    int64_t most = -1;
                    for (size_t w = 0; w < near.size(); ++w) {
                        const int64_t value = worth(given[near[w]], have);
                        if (value > most) best = w, most = value;
                    }
                }
                const Wanted& taken = wanted[place] = given[near[best]];
                for (int64_t u = taken.first; u < taken.first + taken.count; ++u) ++have[later_batch_[u]];
                near.erase(near.begin() + best);
                const int64_t next = place % FILLED + window_;
                if (next < static_cast<int64_t>(given.size())) near.push_back(static_cast<int32_t>(next));
            }
        });
    }

    int64_t worth(const Wanted& each, const std::vector<int64_t>& have) const {
        int64_t sum = 0;
        for (int64_t u = each.first; u < each.first + each.count; ++u) sum += have[later_batch_[u]] * have[later_batch_[u]];
        return sum;
    }

    // Bytes of a page that a batch must want. Between whole rows the bound differs from page to page, evenly spread.
    int64_t least_of(int64_t page) const {
        const uint64_t spread = (static_cast<uint64_t>(page) * GOLDEN) >> 32, step = std::min(row_bytes_, page_bytes_);
        return least_bytes_ - static_cast<int64_t>(step) + static_cast<int64_t>((spread * step) >> 32);
    }

    // Which later batches take which of the full pages that the rows come to.
    void accept(const std::vector<Wanted>& wanted) {
        const int64_t count = wanted.size(), start = start_of(0);
        first_page_ = start / page_bytes_;
        num_pages_ = start_of(count) / page_bytes_ - first_page_;
        accepted_.assign(num_pages_ * words_, 0);
        const int64_t piece = std::max<int64_t>(1, PIECE * row_bytes_ / page_bytes_);
        parallel_for(num_pages_, piece, threads_, [&](int64_t begin, int64_t end) {
            std::vector<int64_t> bytes(num_batches_, 0);
            std::vector<int32_t> seen;
            for (int64_t p = begin; p < end; ++p) {
                const int64_t low = (first_page_ + p) * page_bytes_, high = low + page_bytes_;
                for (int64_t i = std::max<int64_t>(0, (low - start) / row_bytes_); i < count && start_of(i) < high; ++i) {
                    const int64_t here = std::min(high, start_of(i + 1)) - std::max(low, start_of(i));
                    for (int64_t u = wanted[i].first; u < wanted[i].first + wanted[i].count; ++u) {
                        if (!bytes[later_batch_[u]]) seen.push_back(later_batch_[u]);
                        bytes[later_batch_[u]] += here;
                    }
                }
                for (const int32_t batch : seen) {
                    if (bytes[batch] >= least_of(first_page_ + p)) accepted_[p * words_ + batch / 64] |= uint64_t{1} << (batch % 64);
                    bytes[batch] = 0;
                }
                seen.clear();
            }
        });
    }

    // Drops pages of which a batch takes fewer than `least_range` one after the other. Pages that a range of this length covers stay.
    void keep_ranges() {
        for (int64_t length = 1; length < least_range_; length *= 2) {
            const int64_t step = std::min(length, least_range_ - length);  // page p holds what is true of p .. p + length - 1
            for (int64_t p = 0; p < num_pages_; ++p)
                for (int64_t w = 0; w < words_; ++w)
                    accepted_[p * words_ + w] &= p + step < num_pages_ ? accepted_[(p + step) * words_ + w] : 0;
        }
        for (int64_t length = 1; length < least_range_; length *= 2) {
            const int64_t step = std::min(length, least_range_ - length);
            for (int64_t p = num_pages_ - 1; p >= step; --p)
                for (int64_t w = 0; w < words_; ++w) accepted_[p * words_ + w] |= accepted_[(p - step) * words_ + w];
        }
    }

    bool takes(int64_t low, int64_t high, int32_t batch) const {
        for (int64_t p = low; p <= high; ++p)
            if (!(accepted_[p * words_ + batch / 64] >> (batch % 64) & 1)) return false;
        return true;
    }

    // Marks the uses that share a copy, those whose batch takes all pages of the row, and the pages that such rows lie on.
    void share(const std::vector<Wanted>& wanted) {
        shared_.assign(num_pages_, 0);
        parallel_for(wanted.size(), PIECE, threads_, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) {
                const int64_t low = start_of(i) / page_bytes_ - first_page_, high = (start_of(i + 1) - 1) / page_bytes_ - first_page_;
                if (high >= num_pages_) continue;  // the last page is not full
                bool any = false;
                for (int64_t u = wanted[i].first; u < wanted[i].first + wanted[i].count; ++u) {
                    if (!takes(low, high, later_batch_[u])) continue;
                    uses_.place[later_use_[u]] = SHARED;
                    any = true;
                }
                for (int64_t p = low; any && p <= high; ++p) __atomic_store_n(&shared_[p], 1, __ATOMIC_RELAXED);
            }
        });
    }

    bool on_shared_page(int64_t i) const {
        const int64_t last = std::min((start_of(i + 1) - 1) / page_bytes_ - first_page_, num_pages_ - 1);
        for (int64_t p = start_of(i) / page_bytes_ - first_page_; p <= last; ++p)
            if (shared_[p]) return true;
        return false;
    }

    // Rows on shared pages enter the file, the others are packed with their batch.
    void settle(const std::vector<Wanted>& wanted) {
        const int64_t count = wanted.size(), pieces = (count + PIECE - 1) / PIECE;
        std::vector<int64_t> at(pieces + 1, 0);
        const auto each_piece = [&](auto body) {
            parallel_for(pieces, 1, threads_, [&](int64_t begin, int64_t end) {
                for (int64_t piece = begin; piece < end; ++piece) body(piece, piece * PIECE, std::min(count, (piece + 1) * PIECE));
            });
        };
        each_piece([&](int64_t piece, int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i) at[piece + 1] += on_shared_page(i);
        });
        at[0] = rows.size();
        for (int64_t piece = 0; piece < pieces; ++piece) at[piece + 1] += at[piece];
        std::vector<int32_t> found(at[pieces] - at[0]);
        each_piece([&](int64_t piece, int64_t begin, int64_t end) {
            int64_t next = at[piece];
            for (int64_t i = begin; i < end; ++i) {
                const Wanted& each = wanted[i];
                const bool kept = on_shared_page(i);
                uses_.place[each.use] = kept ? static_cast<int32_t>(next) : NOT_CACHED;
                if (!kept) continue;
                for (int64_t u = each.first; u < each.first + each.count; ++u)
                    if (uses_.place[later_use_[u]] == SHARED) uses_.place[later_use_[u]] = static_cast<int32_t>(next);
                found[next++ - at[0]] = each.row;
            }
        });
        rows.insert(rows.end(), found.begin(), found.end());
    }

    RowUses& uses_;
    const int64_t num_batches_, words_, row_bytes_, page_bytes_, least_bytes_, least_range_, window_;
    const int threads_;
    std::vector<int32_t> later_batch_;
    std::vector<int64_t> later_use_;
    int64_t first_page_ = 0, num_pages_ = 0;  // the full ones that the rows of the batch being placed come to
    std::vector<uint64_t> accepted_;          // [page][batch]
    std::vector<uint8_t> shared_;
};

// The members of a batch that have no place yet, in any order.
void collect(const Members& members, int64_t batch, std::vector<int64_t>& next, const RowUses& uses, std::vector<Wanted>& wanted) {
    wanted.resize(members.ptr[batch + 1] - members.ptr[batch]);
    std::atomic<int64_t> size{0};
    members.pieces(batch, next, uses.place, [&](int64_t first, int64_t last, auto use_of) {
        std::vector<Wanted> found;
        for (int64_t i = first; i < last; ++i) {
            const int64_t use = use_of(i);
            if (uses.place[use] == OPEN) found.push_back({0, 0, use, 0, members.rows[i], 0});
        }
        std::copy(found.begin(), found.end(), wanted.begin() + size.fetch_add(found.size()));
    });
    wanted.resize(size);
}

}  // namespace

std::pair<Buffer<int32_t>, Buffer<int32_t>> place_copies(Array<const int64_t> ptr, Array<const int32_t> member_rows, int64_t num_rows,
                                                         int64_t row_bytes, int64_t page_bytes, int64_t least_bytes, int64_t least_range,
                                                         int64_t window, int threads) {
    const Members members{ptr.data(), ptr.size() - 1, member_rows.data(), threads};
    Buffer<int32_t> places(member_rows.size());
    RowUses uses(members, num_rows);
    CopyPlacer placer(uses, members.num_batches, row_bytes, page_bytes, least_bytes, least_range, window, threads);
    std::vector<int64_t> next = uses.begins();
    std::vector<Wanted> wanted;
    for (int64_t b = 0; b < members.num_batches; ++b) {
        collect(members, b, next, uses, wanted);
        placer.place(static_cast<int32_t>(b), wanted);
    }
    next = uses.begins();
    for (int64_t b = 0; b < members.num_batches; ++b)
        members.pieces(b, next, uses.place, [&](int64_t first, int64_t last, auto use_of) {
            for (int64_t i = first; i < last; ++i) places[i] = uses.place[use_of(i)];
        });
    Buffer<int32_t> rows(placer.rows.size());
    std::copy(placer.rows.begin(), placer.rows.end(), rows.data());
    return {std::move(rows), std::move(places)};
}

}  // namespace graphmill
