// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "layers/layers.h"

namespace graphmill {
namespace {

template <class T>
void bind_sums(nb::module_& m) {
    m.def("aggregate", &aggregate<T>, "start"_a, "end"_a, "indices"_a, "dst_pos"_a.none(), "weight"_a.none(), "self_weight"_a.none(), "h"_a,
          "out"_a, "reduce"_a, "threads"_a, Unlocked());
    m.def("aggregate_backward", &aggregate_backward<T>, "start"_a, "end"_a, "dst_pos"_a.none(), "weight"_a.none(), "self_weight"_a.none(),
          "t_start"_a, "t_edge"_a, "t_dst"_a, "t_weight"_a.none(), "grad"_a, "out"_a, "reduce"_a, "threads"_a, Unlocked());
    m.def("attend", &attend<T>, "start"_a, "end"_a, "indices"_a, "dst_pos"_a.none(), "z"_a, "left"_a, "right"_a, "slope"_a, "kept"_a.none(),
          "scale"_a, "weight"_a.none(), "edge"_a.none(), "alpha"_a, "out"_a, "threads"_a, Unlocked());
    m.def("attend_backward", &attend_backward<T>, "start"_a, "end"_a, "indices"_a, "dst_pos"_a.none(), "t_start"_a, "t_edge"_a, "t_dst"_a,
          "z"_a, "left"_a, "right"_a, "slope"_a, "kept"_a.none(), "scale"_a, "weight"_a.none(), "edge"_a.none(), "alpha"_a, "grad"_a, "grad_score"_a,
          "grad_z"_a, "grad_left"_a, "grad_right"_a, "threads"_a, Unlocked());
    m.def("edge_messages", &edge_messages<T>, "start"_a, "end"_a, "indices"_a, "place"_a, "weight"_a.none(), "h"_a, "rows"_a, "matrix"_a,
          "bias"_a, "active"_a.none(), "out"_a, "threads"_a, Unlocked());
    m.def("edge_messages_backward", &edge_messages_backward<T>, "start"_a, "end"_a, "place"_a, "weight"_a.none(), "t_start"_a.none(),
          "t_edge"_a.none(), "t_dst"_a.none(), "rows"_a, "active"_a, "grad"_a, "grad_h"_a.none(), "grad_map"_a, "threads"_a, Unlocked());
}

template <class T, class Id>
void bind_dropout(nb::module_& m) {
    m.def("dropout", &dropout<T, Id>, "x"_a, "node_ids"_a, "key"_a, "threshold"_a, "out"_a, "threads"_a, Unlocked());
    m.def("relu_dropout", &relu_dropout<T, Id>, "x"_a, "bias"_a.none(), "node_ids"_a, "key"_a, "threshold"_a, "threads"_a, Unlocked());
}

template <class T>
void bind_dropout_backward(nb::module_& m) {
    m.def("relu_dropout_backward", &relu_dropout_backward<T>, "result"_a, "grad"_a, "threshold"_a, "out"_a, "threads"_a, Unlocked());
}

template <class Id>
void bind_edge_mask(nb::module_& m) {
    m.def("edge_mask", &edge_mask<Id>, "start"_a, "end"_a, "indices"_a, "dst_pos"_a.none(), "src_ids"_a, "key"_a, "threshold"_a, "kept"_a,
          "threads"_a, Unlocked());
}

}  // namespace

void bind_layers(nb::module_& m) {
    bind_sums<float>(m);
    bind_sums<double>(m);
    bind_sums<Half>(m);
    bind_sums<BFloat>(m);
    bind_dropout<float, int32_t>(m);
    bind_dropout<float, int64_t>(m);
    bind_dropout<double, int32_t>(m);
    bind_dropout<double, int64_t>(m);
    bind_dropout_backward<float>(m);
    bind_dropout_backward<double>(m);
    bind_edge_mask<int32_t>(m);
    bind_edge_mask<int64_t>(m);
    m.def("row_traffic", &row_traffic, "table"_a, "ids"_a, "out"_a, "threads"_a, Unlocked());
}

}  // namespace graphmill
