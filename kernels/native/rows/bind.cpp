// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "rows/page_reader.h"
#include "rows/rows.h"

namespace graphmill {
namespace {

void gather_stored(const nb::object& dtype, std::optional<Table> device, std::optional<Table> host, std::optional<Table> staged,
                   const std::vector<Table>& peers, int64_t peer_stride, Array<const int32_t> slots, WrittenTable out, int threads) {
    const ElementType stored{nb::cast<char>(dtype.attr("kind")), nb::cast<int64_t>(dtype.attr("itemsize"))};
    const nb::gil_scoped_release unlocked;
    gather_tiered(stored, device, host, staged, peers, peer_stride, slots, out, threads);
}

template <class Id>
void bind(nb::module_& m, nb::class_<PageReader>& reader) {
    m.def("gather", &gather<Id>, "table"_a, "node_ids"_a, "out"_a, "threads"_a, Unlocked());
    m.def("gather_by_row", &gather_by_row<Id, int32_t>, "table"_a, "node_ids"_a, "row_of"_a, "out"_a, "threads"_a, Unlocked());
    m.def("gather_by_row", &gather_by_row<Id, int64_t>, "table"_a, "node_ids"_a, "row_of"_a, "out"_a, "threads"_a, Unlocked());
    reader.def("read_rows", &PageReader::read_rows<Id>, "file"_a, "path"_a, "row_ids"_a, "row_bytes"_a, "offset"_a, "merge"_a, "out"_a,
               "digests"_a, Unlocked());
}

}  // namespace

void bind_rows(nb::module_& m) {
    nb::class_<PageReader> reader(m, "PageReader");
    reader.def(nb::init<int64_t, int64_t, int64_t, bool, std::array<int64_t, 3>>(), "depth"_a, "range_bytes"_a, "window_bytes"_a,
               "ring"_a, "faults"_a);
    reader.def("state", &PageReader::state);
    reader.def("read_pages", &PageReader::read_pages, "file"_a, "path"_a, "begin"_a, "end"_a, "needed"_a, "piece_bytes"_a, "memory"_a,
               "digests"_a, Unlocked());
    reader.def("write_rows", &PageReader::write_rows, "file"_a, "path"_a, "row_ids"_a, "row_bytes"_a, "offset"_a, "rows"_a, Unlocked());
    bind<int32_t>(m, reader);
    bind<int64_t>(m, reader);
    m.def("gather_tiered", &gather_stored, "dtype"_a, "device"_a, "host"_a, "staged"_a, "peers"_a, "peer_stride"_a, "slots"_a, "out"_a,
          "threads"_a);
    m.def("check_slots", &check_slots, "slots"_a, "counts"_a, "peer_counts"_a, "peer_stride"_a, Unlocked());
    m.def("place_rows", &place_rows, "source"_a, "source_rows"_a, "out"_a, "out_rows"_a, "threads"_a, Unlocked());
    m.def("add_rows", &add_rows, "source"_a, "source_rows"_a, "out"_a, "out_rows"_a, "threads"_a, Unlocked());
    m.def("take_rows", &take_rows, "source"_a, "source_rows"_a, "out"_a, "out_rows"_a, "threads"_a, Unlocked());
    m.def("ring_errno", &ring_errno);
    m.def("page_digests", &page_digests, "pages"_a, "out"_a, Unlocked());
}

}  // namespace graphmill
