// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "hotness/hotness.h"

namespace graphmill {
namespace {

template <class Id>
void bind(nb::module_& m) {
    m.def("push", &push<Id>, "indptr"_a, "indices"_a, "values"_a, "sums"_a, "low"_a, "num_nodes"_a, "threads"_a, Unlocked());
    m.def("push_weighted", &push_weighted<Id>, "indptr"_a, "indices"_a, "table"_a, "rates"_a, "fanouts"_a, "replace"_a, "scale"_a,
          "sums"_a, "low"_a, "num_nodes"_a, "first_node"_a, "threads"_a, Unlocked());
    m.def("count_prefixes", &count_prefixes<Id>, "ids"_a, "ends"_a, "counts"_a, Unlocked());
    m.def("count_inputs_under", &count_inputs_under<Id>, "ids"_a, "blocks"_a, "counts"_a, Unlocked());
}

}  // namespace

void bind_hotness(nb::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
    m.def("weighted_inclusions", &weighted_inclusions, "row"_a, "fanout"_a, "replace"_a, Unlocked());
    m.def("pick_exponents", &pick_exponents, "indptr"_a, "rates"_a, "fanout"_a, "replace"_a, "scale"_a, "before"_a, "after"_a,
          "values"_a, "threads"_a, Unlocked());
    m.def("reach", &reach, "sums"_a, "before"_a, "reciprocity"_a, "scale"_a, "out"_a, "threads"_a, Unlocked());
}

}  // namespace graphmill
