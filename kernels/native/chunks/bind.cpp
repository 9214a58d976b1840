// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "chunks/chunks.h"

namespace graphmill {
namespace {

// u64[sets, words]
nb::object shared(Array<const uint64_t> bits, int threads) {
    Buffer<uint64_t> words;
    {
        nb::gil_scoped_release unlocked;
        words = shared_sets(bits, threads);
    }
    const int64_t sets = bits.shape(0), width = sets ? words.size() / sets : 0;
    return nb::cast(std::move(words)).attr("reshape")(sets, width);
}

// For every device the tuple that kernels/chunks/steps.py takes apart.
template <class Id>
nb::list next(StepMaker<Id>& maker, const std::vector<Array<const Id>>& dst) {
    std::vector<DeviceStep<Id>> made;
    {
        nb::gil_scoped_release unlocked;
        made = maker.next(dst);
    }
    nb::list steps;
    for (DeviceStep<Id>& step : made) {
        nb::list fetch;
        for (Fetch& each : step.fetch) fetch.append(nb::make_tuple(each.hop, std::move(each.peer_rows), std::move(each.own_rows)));
        steps.append(nb::make_tuple(std::move(step.start), std::move(step.end), std::move(step.indices), std::move(step.src_ids),
                                    std::move(step.dst_pos), std::move(step.load_ids), std::move(step.load_rows), fetch,
                                    step.num_transition));
    }
    return steps;
}

template <class Id>
void bind(nb::module_& m) {
    m.def("neighbour_sets", &neighbour_sets<Id>, "indptr"_a, "indices"_a, "node_ids"_a, "ptr"_a, "self_term"_a, "threads"_a, "out"_a,
          Unlocked());
    m.def("listed_unions", &listed_unions<Id>, "indptr"_a, "numbers"_a, "column_of"_a, "out"_a, Unlocked());
    m.def("join_clusters", &join_clusters<Id>, "indptr"_a, "indices"_a, "edge_weights"_a.none(), "weights"_a, "most"_a, "roots"_a,
          "cluster_of"_a, "sizes"_a, Unlocked());
    m.def("count_edges", &count_edges<Id>, "indptr"_a, "indices"_a, "cluster_of"_a, "both"_a, "counts"_a, Unlocked());
    m.def("scatter_edges", &scatter_edges<Id>, "indptr"_a, "indices"_a, "edge_weights"_a.none(), "cluster_of"_a, "both"_a, "range_of"_a,
          "next"_a, "edges"_a, Unlocked());
    m.def("part_graph", &part_graph<Id>, "indptr"_a, "indices"_a, "nodes"_a, "local"_a, "threads"_a, Unlocked());
}

// These have a name for each type of ids.
template <class Id>
void bind(nb::module_& m, const std::string& bits) {
    m.def(("ldg" + bits).c_str(), &ldg<Id>, "indptr"_a, "indices"_a, "order"_a, "weights"_a, "capacity"_a, "num_parts"_a, "part_of"_a,
          Unlocked());
    m.def(("cut_matrix" + bits).c_str(), &cut_matrix<Id>, "indptr"_a, "indices"_a, "part_of"_a, "num_parts"_a, "counts"_a, Unlocked());
    m.def(("replicas" + bits).c_str(), &replicas<Id>, "indptr"_a, "indices"_a, "by_part"_a, "bounds"_a, Unlocked());
    nb::class_<StepMaker<Id>>(m, ("StepMaker" + bits).c_str())
        .def(nb::init<Array<const int64_t>, Array<const Id>, Array<const int32_t>, int, bool, int>(), "indptr"_a, "indices"_a,
             "part_of"_a, "num_parts"_a, "self_term"_a, "threads"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(),
             nb::keep_alive<1, 4>(), Unlocked())
        .def("next", &next<Id>, "dst"_a);
}

}  // namespace

void bind_chunks(nb::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
    bind<int32_t>(m, "32");
    bind<int64_t>(m, "64");
    m.def("sort_edges", &sort_edges, "edges"_a, "weighted"_a, "first"_a, "distinct"_a, Unlocked());
    m.def("merge_edges", &merge_edges, "edges"_a, "weighted"_a, "indices"_a, "weights"_a, Unlocked());
    m.def("reverse_cuthill_mckee", &reverse_cuthill_mckee, "xadj"_a, "adjacency"_a, Unlocked());
    m.def("assign_most", &assign_most, "gains"_a, Unlocked());
    m.def("improve_path", &improve_path, "overlap"_a, "order"_a, "work"_a, Unlocked());
    m.def("swap_changes", &swap_changes, "others"_a, "own"_a, "chosen"_a, "step"_a, "threads"_a, Unlocked());
    m.def("set_overlaps", &set_overlaps, "left"_a, "right"_a, "threads"_a, Unlocked());
    m.def("shared_sets", &shared, "bits"_a, "threads"_a);
    m.def("set_sizes", &set_sizes, "bits"_a, "threads"_a, Unlocked());
    m.def("chain_overlaps", &chain_overlaps, "bits"_a, "threads"_a, Unlocked());
    m.def("set_unions", &set_unions, "bits"_a, "rows"_a, "threads"_a, "out"_a, Unlocked());
}

}  // namespace graphmill
