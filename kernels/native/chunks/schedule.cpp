// The searches of a schedule: exact assignment, reversals and moves of a path, swaps of chunks; see kernels/chunks/schedule.py.
#include "chunks/chunks.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/parallel.h"
#include "chunks/bits.h"

namespace graphmill {
namespace {

// A path over n sets and how much neighbours share; moves that make the sum larger.
class Path {
  public:
    Path(const int64_t* overlap, int64_t n, int64_t* order) : overlap_(overlap), n_(n), order_(order) {}

    // Reverses and moves ranges until nothing helps or `work` evaluations are used; returns what is left of the work.
    int64_t improve(int64_t work) {
        for (bool better = true; better && work > 0;) {
            better = false;
            for (int64_t first = 0; first < n_ && work > 0; ++first) {
                for (int64_t last = first; last < n_ && work > 0; ++last) {
                    work -= 1;
                    if (last > first && reverse_gain(first, last) > 0) {
                        std::reverse(order_ + first, order_ + last + 1);
                        better = true;
                    }
                    if (last - first < 3) better |= move(first, last, work);
                }
            }
        }
        return work;
    }

  private:
    // What the sets at two places share; nothing where one is outside.
    int64_t shared(int64_t left, int64_t right) const {
        return left < 0 || right >= n_ ? 0 : overlap_[order_[left] * n_ + order_[right]];
    }

    int64_t reverse_gain(int64_t first, int64_t last) const {
        return outside(first - 1, last) + outside(last + 1, first) - outside(first - 1, first) - outside(last + 1, last);
    }

    int64_t outside(int64_t place, int64_t inner) const {
        return place < 0 || place >= n_ ? 0 : overlap_[order_[place] * n_ + order_[inner]];
    }

    // Moves a short range to where it gains most, either way round; the lowest such place.
    bool move(int64_t first, int64_t last, int64_t& work) {
        const int64_t closed = first > 0 && last + 1 < n_ ? shared(first - 1, last + 1) : 0;
        const int64_t loss = outside(first - 1, first) + outside(last + 1, last) - closed;
        int64_t best = 0, to = -1;
        bool turned = false;
        for (int64_t gap = 0; gap <= n_; ++gap) {  // between places gap - 1 and gap
            if (gap >= first && gap <= last + 1) continue;
            const int64_t open = gap > 0 && gap < n_ ? shared(gap - 1, gap) : 0;
            const int64_t straight = outside(gap - 1, first) + outside(gap, last) - open - loss;
            const int64_t back = outside(gap - 1, last) + outside(gap, first) - open - loss;
            if (straight > best) best = straight, to = gap, turned = false;
            if (back > best) best = back, to = gap, turned = true;
        }
        work -= n_ / 8 + 1;
        if (to < 0) return false;
        if (turned) std::reverse(order_ + first, order_ + last + 1);
        if (to < first) {
            std::rotate(order_ + to, order_ + first, order_ + last + 1);
        } else {
            std::rotate(order_ + first, order_ + last + 1, order_ + to);
        }
        return true;
    }

    const int64_t* overlap_;
    int64_t n_;
    int64_t* order_;
};

// Swaps of two chunks of one part. `others[s]` is the union of the other parts' sets in step s, `own[k]` the part's sets.
class Swaps {
  public:
    Swaps(const uint64_t* others, const uint64_t* own, int64_t n, int64_t words, const int64_t* chosen)
        : others_(others), own_(own), n_(n), words_(words), chosen_(chosen), nothing_(words, 0) {}

    // What V_+ru changes by when steps s < t exchange their chunks.
    int64_t change(int64_t s, int64_t t) const {
        int64_t sum = 0;
        const Step s_low = step(s - 1), t_high = step(t + 1);
        const uint64_t *a = own(s), *b = own(t), *at_s = other(s), *at_t = other(t);
        if (t == s + 1) {
            for (int64_t w = 0; w < words_; ++w) {
                const uint64_t s_old = at_s[w] | a[w], s_new = at_s[w] | b[w], t_old = at_t[w] | b[w], t_new = at_t[w] | a[w];
                const uint64_t below = s_low.others[w] | s_low.own[w], above = t_high.others[w] | t_high.own[w];
                sum += count(s_new & ~below) - count(s_old & ~below) + count(t_new & ~s_new) - count(t_old & ~s_old);
                sum += count(above & ~t_new) - count(above & ~t_old);
            }
            return sum;
        }
        const Step s_high = step(s + 1), t_low = step(t - 1);
        for (int64_t w = 0; w < words_; ++w) {
            const uint64_t s_old = at_s[w] | a[w], s_new = at_s[w] | b[w], t_old = at_t[w] | b[w], t_new = at_t[w] | a[w];
            const uint64_t before_s = s_low.others[w] | s_low.own[w], after_s = s_high.others[w] | s_high.own[w];
            const uint64_t before_t = t_low.others[w] | t_low.own[w], after_t = t_high.others[w] | t_high.own[w];
            sum += count(s_new & ~before_s) - count(s_old & ~before_s) + count(after_s & ~s_new) - count(after_s & ~s_old);
            sum += count(t_new & ~before_t) - count(t_old & ~before_t) + count(after_t & ~t_new) - count(after_t & ~t_old);
        }
        return sum;
    }

  private:
    struct Step {
        const uint64_t *others, *own;
    };

    // The step before the first and the one after the last hold nothing.
    Step step(int64_t number) const {
        if (number < 0 || number >= n_) return {nothing_.data(), nothing_.data()};
        return {other(number), own(number)};
    }

    static int64_t count(uint64_t word) { return __builtin_popcountll(word); }
    const uint64_t* other(int64_t step) const { return others_ + step * words_; }
    const uint64_t* own(int64_t step) const { return own_ + chosen_[step] * words_; }

    const uint64_t *others_, *own_;
    int64_t n_, words_;
    const int64_t* chosen_;
    std::vector<uint64_t> nothing_;
};

}  // namespace

// Shortest augmenting paths with dual prices (the Hungarian method, O(n^3)). Among equal paths the lowest column is taken.
Buffer<int64_t> assign_most(Array<const int64_t> gains) {
    const int64_t n = gains.shape(0);
    const int64_t* gain = gains.data();
    Buffer<int64_t> out(n);
    constexpr int64_t FAR = std::numeric_limits<int64_t>::max() / 4;
    std::vector<int64_t> row_price(n + 1, 0), column_price(n + 1, 0), row_of(n + 1, 0), before(n + 1), slack(n + 1);
    std::vector<char> done(n + 1);
    for (int64_t row = 1; row <= n; ++row) {
        std::fill(slack.begin(), slack.end(), FAR);
        std::fill(done.begin(), done.end(), 0);
        row_of[0] = row;
        int64_t column = 0;
        do {
            done[column] = 1;
            const int64_t at = row_of[column];
            int64_t least = FAR, next = 0;
            for (int64_t j = 1; j <= n; ++j) {
                if (done[j]) continue;
                const int64_t cost = -gain[(at - 1) * n + j - 1] - row_price[at] - column_price[j];
                if (cost < slack[j]) {
                    slack[j] = cost;
                    before[j] = column;
                }
                if (slack[j] < least) {
                    least = slack[j];
                    next = j;
                }
            }
            for (int64_t j = 0; j <= n; ++j) {
                if (done[j]) {
                    row_price[row_of[j]] += least;
                    column_price[j] -= least;
                } else {
                    slack[j] -= least;
                }
            }
            column = next;
        } while (row_of[column]);
        while (column) {
            row_of[column] = row_of[before[column]];
            column = before[column];
        }
    }
    for (int64_t j = 1; j <= n; ++j) out[row_of[j] - 1] = j - 1;
    return out;
}

int64_t improve_path(Array<const int64_t> overlap, Array<int64_t> order, int64_t work) {
    Path path(overlap.data(), overlap.shape(0), order.data());
    return path.improve(work);
}

Buffer<int64_t> swap_changes(Array<const uint64_t> others, Array<const uint64_t> own, Array<const int64_t> chosen, int64_t step,
                             int threads) {
    const int64_t n = others.shape(0), words = others.shape(1), count = n - step - 1;
    const Swaps swaps(others.data(), own.data(), n, words, chosen.data());
    Buffer<int64_t> out(count);
    int64_t* change = out.data();
    parallel_for(count, 1, worth_a_team(8 * count * words, threads), [&](int64_t begin, int64_t end) {
        for (int64_t place = begin; place < end; ++place) change[place] = swaps.change(step, step + 1 + place);
    });
    return out;
}

}  // namespace graphmill
