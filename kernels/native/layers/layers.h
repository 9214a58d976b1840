// The kernels of this room as bind.cpp sees them; the modules of kernels/layers/ are their front doors and say what they compute.
#pragma once

#include <cstdint>

#include "base/array.h"
#include "base/simd.h"

namespace graphmill {

// T: float, double, Half or BFloat. `reduce` is the number of a reduction in kernels/layers/aggregate_cuda.py.
template <class T>
void aggregate(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Optional<const int32_t> dst_pos,
               Optional<const float> weight, Optional<const float> self_weight, Array<const T> h, Array<T> out, int reduce, int threads);

template <class T>
void aggregate_backward(Array<const int32_t> start, Array<const int32_t> end, Optional<const int32_t> dst_pos,
                        Optional<const float> weight, Optional<const float> self_weight, Array<const int32_t> t_start,
                        Array<const int32_t> t_edge, Array<const int32_t> t_dst, Optional<const float> t_weight, Array<const T> grad,
                        Array<T> out, int reduce, int threads);

template <class T>
void attend(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Optional<const int32_t> dst_pos,
            Array<const T> z, Array<const T> left, Array<const T> right, Sum<T> slope, Optional<const uint8_t> kept, Sum<T> scale,
            Optional<const float> weight, Optional<const Sum<T>> edge, Array<Sum<T>> alpha, Array<T> out, int threads);

template <class T>
void attend_backward(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Optional<const int32_t> dst_pos,
                     Array<const int32_t> t_start, Array<const int32_t> t_edge, Array<const int32_t> t_dst, Array<const T> z,
                     Array<const T> left, Array<const T> right, Sum<T> slope, Optional<const uint8_t> kept, Sum<T> scale,
                     Optional<const float> weight, Optional<const Sum<T>> edge, Array<const Sum<T>> alpha, Array<const T> grad,
                     Array<Sum<T>> grad_score, Array<T> grad_z, Array<T> grad_left, Array<T> grad_right, int threads);

template <class T>
void edge_messages(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Array<const int32_t> place,
                   Optional<const float> weight, Array<const T> h, Array<const Sum<T>> rows, Array<const Sum<T>> matrix,
                   Array<const Sum<T>> bias, Optional<uint8_t> active, Array<T> out, int threads);

template <class T>
void edge_messages_backward(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> place,
                            Optional<const float> weight, Optional<const int32_t> t_start, Optional<const int32_t> t_edge,
                            Optional<const int32_t> t_dst, Array<const Sum<T>> rows, Array<const uint8_t> active, Array<const T> grad,
                            Optional<T> grad_h, Array<Sum<T>> grad_map, int threads);

// T of dropout: float or double.
template <class T, class Id>
void dropout(Array<const T> x, Array<const Id> node_ids, uint64_t key, uint32_t threshold, Array<T> out, int threads);

template <class T, class Id>
void relu_dropout(Array<T> x, Optional<const T> bias, Array<const Id> node_ids, uint64_t key, uint32_t threshold, int threads);

template <class T>
void relu_dropout_backward(Array<const T> result, Array<const T> grad, uint32_t threshold, Array<T> out, int threads);

template <class Id>
void edge_mask(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Optional<const int32_t> dst_pos,
               Array<const Id> src_ids, uint64_t key, uint32_t threshold, Array<uint8_t> kept, int threads);

float row_traffic(Array<const float> table, Array<const int32_t> ids, Array<float> out, int threads);

}  // namespace graphmill
