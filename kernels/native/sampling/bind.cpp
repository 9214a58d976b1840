// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "sampling/sampling.h"

namespace graphmill {
namespace {

// Python has a class for either map.
template <class Id>
struct DirectSampler {
    std::unique_ptr<Sampler<Id>> sampler;
};
template <class Id>
struct HashedSampler : DirectSampler<Id> {};

using Walking = std::tuple<int64_t, int64_t, uint64_t>;
using PerRelation = std::vector<std::vector<int64_t>>;

// The arguments that the sampler reads as long as it lives are kept with it.
template <class Id, bool HASHED, class Class>
void bind_constructor(Class& bound) {
    const auto make = [](typename Class::Type* self, Array<const int64_t> indptr, Array<const Id> indices, std::vector<int64_t> fanouts,
                         bool replace, int threads, bool fused, Optional<const uint32_t> table, Optional<const int32_t> support,
                         Walking walks, Optional<const uint8_t> edge_types, PerRelation by_relation) {
        const auto [paths, length, restart] = walks;
        const SamplerSetup<Id> setup{indptr, indices, std::move(fanouts), replace, threads, fused, table, support,
                                     {paths, length, restart}, edge_types, std::move(by_relation)};
        new (self) typename Class::Type{{make_sampler(setup, HASHED)}};
    };
    bound.def("__init__", make, "indptr"_a, "indices"_a, "fanouts"_a, "replace"_a, "threads"_a, "fused"_a = true,
              "table"_a = nb::none(), "support"_a = nb::none(), "walks"_a = Walking(), "edge_types"_a = nb::none(),
              "by_relation"_a = PerRelation(), nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 8>(),
              nb::keep_alive<1, 9>(), nb::keep_alive<1, 11>(), Unlocked());
}

template <class Id>
void bind_samplers(nb::module_& m, const char* direct_name, const char* hashed_name) {
    using Direct = DirectSampler<Id>;
    nb::class_<Direct> direct(m, direct_name);
    nb::class_<HashedSampler<Id>, Direct> hashed(m, hashed_name);
    bind_constructor<Id, false>(direct);
    bind_constructor<Id, true>(hashed);
    const auto sample = [](Direct& self, uint64_t batch_key, Array<const Id> seeds, int transposed, bool positions) {
        SampledBatch<Id> batch = self.sampler->sample(batch_key, seeds, Transposes(transposed), positions);
        std::vector<decltype(as_tuple(batch.blocks[0]))> blocks;
        for (SampledBlock& block : batch.blocks) blocks.push_back(as_tuple(block));
        return std::make_pair(std::move(batch.src_ids), std::move(blocks));
    };
    direct.def("sample", sample, "batch_key"_a, "seeds"_a, "transposed"_a, "positions"_a, Unlocked())
        .def("read_ahead", [](Direct& self) { self.sampler->read_ahead(); })
        .def("take_visits", [](Direct& self, Array<uint32_t> counts) { self.sampler->take_visits(counts); }, "counts"_a, Unlocked())
        .def_prop_ro("scratch_bytes", [](Direct& self) { return self.sampler->scratch_bytes(); })
        .def_prop_ro("counts_visits", [](Direct& self) { return self.sampler->counts_visits(); });
}

template <class Id>
void bind_renamer(nb::module_& m, const char* name) {
    struct Held {
        std::unique_ptr<Renamer<Id>> renamer;
    };
    nb::class_<Held>(m, name)
        .def("__init__", [](Held* self, int64_t num_nodes) { new (self) Held{make_renamer<Id>(num_nodes)}; }, "num_nodes"_a)
        .def("begin", [](Held& self, Array<const Id> seeds) { self.renamer->begin(seeds); }, "seeds"_a, Unlocked())
        .def("nodes", [](Held& self) { return self.renamer->nodes(); }, Unlocked())
        .def("name", [](Held& self, Optional<const int64_t> order, Array<const int32_t> counts, Array<const Id> sources,
                        Array<int32_t> end) { return self.renamer->name(order, counts, sources, end); },
             "order"_a.none(), "counts"_a, "sources"_a, "end"_a, Unlocked());
}

template <class Id>
void bind(nb::module_& m) {
    const auto draw = [](Array<const int64_t> indptr, Array<const Id> indices, std::tuple<int64_t, int64_t, int64_t> place,
                         Optional<const uint8_t> edge_types, Optional<const uint32_t> table, Optional<const int32_t> support,
                         Array<const Id> nodes, uint64_t layer_key, int64_t fanout, std::vector<int64_t> by_relation, bool replace,
                         bool positions) {
        const auto [first_node, first_edge, num_nodes] = place;
        const Rows<Id> rows{indptr, indices, first_node, first_edge, num_nodes, edge_types, table, support};
        DrawnRows<Id> drawn = draw_rows(rows, nodes, layer_key, fanout, by_relation, replace, positions);
        return std::make_tuple(std::move(drawn.counts), std::move(drawn.sources), std::move(drawn.position), std::move(drawn.share));
    };
    m.def("draw_rows", draw, "indptr"_a, "indices"_a, "place"_a, "edge_types"_a.none(), "table"_a.none(), "support"_a.none(), "nodes"_a,
          "layer_key"_a, "fanout"_a, "by_relation"_a, "replace"_a, "positions"_a, Unlocked());
    m.def("alias_fault", &alias_fault<Id>, "indptr"_a, "indices"_a, "weights"_a, "of_nodes"_a, "refuse_empty"_a, "threads"_a, Unlocked());
    m.def("alias_tables", &alias_tables<Id>, "indptr"_a, "indices"_a, "weights"_a, "of_nodes"_a, "uniform"_a, "begin"_a, "end"_a,
          "table"_a, "support"_a, "threads"_a, Unlocked());
}

}  // namespace

void bind_sampling(nb::module_& m) {
    bind_samplers<int32_t>(m, "Sampler32", "HashedSampler32");
    bind_samplers<int64_t>(m, "Sampler64", "HashedSampler64");
    bind_renamer<int32_t>(m, "Renamer32");
    bind_renamer<int64_t>(m, "Renamer64");
    bind<int32_t>(m);
    bind<int64_t>(m);
    m.def("choose", &choose, "row_key"_a, "degree"_a, "taken"_a, "replace"_a, "anywhere"_a);
}

}  // namespace graphmill
