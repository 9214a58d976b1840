// What Python sees of the kernels in this room.
#include "base/bind.h"

#include "base/base.h"

namespace graphmill {
namespace {

template <class Id>
void bind(nb::module_& m) {
    m.def("absorb_ids", &absorb_ids<Id>, "key"_a, "ids"_a, "out"_a, "threads"_a, Unlocked());
    m.def("normal_int", &normal_int<Id>, "key"_a, "ids"_a, "out"_a, "threads"_a, Unlocked());
    m.def("random_gather", &random_gather<Id>, "indptr"_a, "indices"_a, "dst_ids"_a, "positions"_a, "map"_a, "threads"_a, Unlocked());
}

}  // namespace

void bind_base(nb::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
}

}  // namespace graphmill
