// Counter-based dropout; see kernels/layers/dropout.py.
#include "layers/layers.h"

#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"

namespace graphmill {
namespace {

constexpr int64_t DRAWS = 16;         // draws made together, so that the compiler vectorises them
constexpr int64_t SPAN = 4 * DRAWS;    // columns they serve: four 16-bit lanes each

template <class T, class Value>
void drop_row(T* out, int64_t width, uint64_t row_key, uint32_t threshold, T scale, Value value) {
    for (int64_t column = 0; column < width; column += SPAN) {
        uint64_t bits[DRAWS];
        for (int64_t g = 0; g < DRAWS; ++g) bits[g] = draw(row_key, column / 4 + g);
        uint16_t lanes[SPAN];
        for (int64_t g = 0; g < DRAWS; ++g) {
            for (int64_t lane = 0; lane < 4; ++lane) {
                lanes[4 * g + lane] = static_cast<uint16_t>(bits[g] >> (16 * lane));
            }
        }
        const int64_t span = width - column < SPAN ? width - column : SPAN;
        for (int64_t c = 0; c < span; ++c) out[column + c] = lanes[c] < threshold ? T(0) : value(column + c) * scale;
    }
}

int64_t rows_of_piece(int64_t width) { return std::max<int64_t>(8, 65536 / std::max<int64_t>(1, width)); }

template <class T>
T scale_of(uint32_t threshold) { return T(65536) / static_cast<T>(65536 - threshold); }

template <class T>
T rectified(T value) { return value < T(0) ? T(0) : value; }  // what is not a number stays so

// Ids of nodes, of either type: they are looked at once a row.
class NodeIds {
  public:
    explicit NodeIds(Array<const int32_t> ids) : narrow_(ids.data()) {}
    explicit NodeIds(Array<const int64_t> ids) : wide_(ids.data()) {}
    uint64_t operator[](int64_t i) const { return static_cast<uint64_t>(wide_ ? wide_[i] : int64_t{narrow_[i]}); }

  private:
    const int32_t* narrow_ = nullptr;
    const int64_t* wide_ = nullptr;
};

template <class T>
void drop(Array<const T> x, NodeIds node, uint64_t key, uint32_t threshold, Array<T> out, int threads) {
    const T* input = x.data();
    T* output = out.data();
    const int64_t width = x.shape(1);
    const T scale = scale_of<T>(threshold);
    parallel_for(x.shape(0), rows_of_piece(width), threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const T* row = input + i * width;
            drop_row(output + i * width, width, absorb(key, node[i]), threshold, scale, [=](int64_t c) { return row[c]; });
        }
    });
}

template <class T>
void relu_drop(Array<T> x, Optional<const T> bias, NodeIds node, uint64_t key, uint32_t threshold, int threads) {
    T* rows = x.data();
    const int64_t width = x.shape(1);
    const std::vector<T> zeros(bias ? 0 : width);
    const T* added = bias ? bias->data() : zeros.data();
    const T scale = scale_of<T>(threshold);
    parallel_for(x.shape(0), rows_of_piece(width), threads, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            T* row = rows + i * width;
            const auto value = [=](int64_t c) { return rectified(row[c] + added[c]); };
            if (threshold) {
                drop_row(row, width, absorb(key, node[i]), threshold, scale, value);
            } else {
                for (int64_t c = 0; c < width; ++c) row[c] = value(c);
            }
        }
    });
}

}  // namespace

template <class T, class Id>
void dropout(Array<const T> x, Array<const Id> node_ids, uint64_t key, uint32_t threshold, Array<T> out, int threads) {
    drop<T>(x, NodeIds(node_ids), key, threshold, out, threads);
}

template <class T, class Id>
void relu_dropout(Array<T> x, Optional<const T> bias, Array<const Id> node_ids, uint64_t key, uint32_t threshold, int threads) {
    relu_drop<T>(x, bias, NodeIds(node_ids), key, threshold, threads);
}

template <class T>
void relu_dropout_backward(Array<const T> result, Array<const T> grad, uint32_t threshold, Array<T> out, int threads) {
    const T *kept = result.data(), *above = grad.data();
    T* below = out.data();
    const int64_t width = result.shape(1);
    const T scale = scale_of<T>(threshold);
    parallel_for(result.shape(0), rows_of_piece(width), threads, [=](int64_t begin, int64_t end) {
        for (int64_t e = begin * width; e < end * width; ++e) {
            const T scaled = above[e] * scale;  // in any case, so that no branch is taken: half of them would be guessed wrong
            below[e] = kept[e] == T(0) ? T(0) : scaled;
        }
    });
}

template decltype(dropout<float, int32_t>) dropout<float, int32_t>;
template decltype(dropout<float, int64_t>) dropout<float, int64_t>;
template decltype(dropout<double, int32_t>) dropout<double, int32_t>;
template decltype(dropout<double, int64_t>) dropout<double, int64_t>;

template decltype(relu_dropout<float, int32_t>) relu_dropout<float, int32_t>;
template decltype(relu_dropout<float, int64_t>) relu_dropout<float, int64_t>;
template decltype(relu_dropout<double, int32_t>) relu_dropout<double, int32_t>;
template decltype(relu_dropout<double, int64_t>) relu_dropout<double, int64_t>;

template decltype(relu_dropout_backward<float>) relu_dropout_backward<float>;
template decltype(relu_dropout_backward<double>) relu_dropout_backward<double>;

}  // namespace graphmill
