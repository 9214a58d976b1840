// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "graph/graph.h"
#include "graph/id_set.h"

namespace graphmill {
namespace {

using Text = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The text stays locked against changes of its size while it is read. Returns a list of arrays, or None.
nb::object columns_of(const Text& text, int64_t first, int64_t size, int separator, int comment, bool carriage, int64_t num_fields,
                      const std::vector<std::pair<int64_t, bool>>& columns, int threads) {
    auto found = [&] {
        const nb::gil_scoped_release unlocked;
        const char* begin = reinterpret_cast<const char*>(text.data()) + first;
        return text_columns(begin, size, separator, comment, carriage, num_fields, columns, threads);
    }();
    if (!found) return nb::none();
    nb::list arrays;
    for (size_t number = 0; number < columns.size(); ++number) {
        TextColumn& column = (*found)[number];
        arrays.append(columns[number].second ? nb::cast(std::move(column.real)) : nb::cast(std::move(column.whole)));
    }
    return arrays;
}

template <class Id>
void bind(nb::module_& m) {
    const auto build = [&](const char* name, auto function) {
        m.def(name, function, "src"_a, "dst"_a, "num_nodes"_a, "undirected"_a, "merge"_a, "drop_loops"_a, "threads"_a, Unlocked());
    };
    build("build_csc32", &build_csc<Id, int32_t>);
    build("build_csc64", &build_csc<Id, int64_t>);
    m.def("edge_order", &edge_order<Id>, "rows"_a, "src"_a, "types"_a.none(), "ties"_a.none(), "num_rows"_a, "threads"_a, Unlocked());
    m.def("rmat", &rmat<Id>, "key"_a, "scramble_key"_a, "scrambled"_a, "num_nodes"_a, "scale"_a, "top_left"_a, "top"_a,
          "all_but_last"_a, "first"_a, "src"_a, "dst"_a, "threads"_a, Unlocked());
    m.def("sbm", &sbm<Id>, "key"_a, "scramble_key"_a, "num_nodes"_a, "classes"_a, "threshold"_a, "first"_a, "src"_a, "dst"_a,
          "threads"_a, Unlocked());
    m.def("citations", &citations<Id>, "key"_a, "scramble_key"_a, "scrambled"_a, "num_nodes"_a, "classes"_a, "inside"_a, "copied"_a,
          "all_edges"_a, "first"_a, "src"_a, "dst"_a, "threads"_a, Unlocked());
}

template <class Id>
void bind_records(nb::module_& m, const char* deal, const char* sort) {
    m.def(deal, &deal_records<Id>, "records"_a, "width"_a, "range_of"_a, "shift"_a, "num_ranges"_a, "reverse"_a, "drop_loops"_a,
          "type_step"_a, Unlocked());
    m.def(sort, &sort_ends<Id>, "ends"_a, "low"_a, "num_rows"_a, "merge"_a, "threads"_a, Unlocked());
}

template <class Place>
void bind_index(nb::module_& m, const char* name) {
    nb::class_<IdIndex<Place>>(m, name)
        .def(nb::init<Array<const int64_t>>(), "ids"_a, nb::keep_alive<1, 2>(), Unlocked())
        .def("look_up", &IdIndex<Place>::look_up, "given"_a, "threads"_a, Unlocked());
}

}  // namespace

void bind_graph(nb::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
    bind_records<int32_t>(m, "deal_records32", "sort_ends32");
    bind_records<int64_t>(m, "deal_records64", "sort_ends64");
    bind_index<int32_t>(m, "IdIndex32");
    bind_index<int64_t>(m, "IdIndex64");
    m.def("unique_places", &unique_places, "ids"_a, Unlocked());
    nb::class_<IdSet>(m, "IdSet")
        .def(nb::init<>())
        .def("add", &IdSet::add, "ids"_a, "side"_a, Unlocked())
        .def("sorted", &IdSet::sorted, Unlocked());
    m.def("cyclic_labels", &cyclic_labels, "scramble_key"_a, "scrambled"_a, "classes"_a, "out"_a, "threads"_a, Unlocked());
    m.def("block_labels", &block_labels, "scramble_key"_a, "scrambled"_a, "classes"_a, "out"_a, "threads"_a, Unlocked());
    m.def("class_features", &class_features, "labels"_a, "centroids"_a, "key"_a, "noise"_a, "first"_a, "out"_a, "threads"_a, Unlocked());
    m.def("text_columns", &columns_of, "text"_a.noconvert(), "first"_a, "size"_a, "separator"_a, "comment"_a, "carriage"_a,
          "num_fields"_a, "columns"_a, "threads"_a);
}

}  // namespace graphmill
