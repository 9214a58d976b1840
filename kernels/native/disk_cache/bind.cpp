// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "disk_cache/disk_cache.h"

namespace graphmill {
namespace {

template <class Id>
void bind(nb::module_& m) {
    m.def("touched_pages", &touched_pages<Id>, "ptr"_a, "rows"_a, "num_rows"_a, "row_bytes"_a, "pages"_a, "ranges"_a, "threads"_a,
          Unlocked());
    m.def("split_segment", &split_segment<Id>, "ptr"_a, "node_ids"_a, "state"_a, "most_cached"_a, "threads"_a, Unlocked());
    m.def("count_gaps", &count_gaps<Id>, "first_batch"_a, "ptr"_a, "node_ids"_a, "last"_a, "gaps"_a, "unit_batches"_a, "far"_a, "uses"_a,
          "threads"_a, Unlocked());
    m.def("gray_order", &gray_order<Id>, "ptr"_a, "ids"_a, "row_bytes"_a, "page_bytes"_a, "window"_a, "piece"_a, "threads"_a,
          Unlocked());
    m.def("minhash_order", &minhash_order<Id>, "ptr"_a, "ids"_a, "permutations"_a, Unlocked());
    m.def("pack_range", &pack_range<Id>, "rows"_a, "first_row"_a, "ptr"_a, "ids"_a, "done"_a, "memory"_a, "starts"_a, "used"_a, "low"_a,
          "high"_a, Unlocked());
}

}  // namespace

void bind_disk_cache(nb::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
    m.def("place_copies", &place_copies, "ptr"_a, "members"_a, "num_rows"_a, "row_bytes"_a, "page_bytes"_a, "least_bytes"_a,
          "least_range"_a, "window"_a, "threads"_a, Unlocked());
}

}  // namespace graphmill
