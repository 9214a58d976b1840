// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "temporal/temporal.h"

namespace graphmill {
namespace {

template <class Id>
struct BoundSampler {
    std::unique_ptr<TemporalSampler<Id>> sampler;
};

// The arrays that the sampler reads as long as it lives are kept with it.
template <class Id>
void bind_sampler(nb::module_& m, const char* name) {
    using Bound = BoundSampler<Id>;
    const auto make = [](Bound* self, Array<const int64_t> indptr, Array<const Id> indices, Array<const double> edge_times,
                         std::vector<int64_t> fanouts, bool replace, bool recent, double window, Optional<const uint8_t> edge_types,
                         std::vector<std::vector<int64_t>> by_relation, Optional<const uint32_t> table,
                         Optional<const int32_t> support, int empty) {
        const TemporalSetup<Id> setup{indptr, indices, edge_times, std::move(fanouts), replace, recent,
                                      window, edge_types, std::move(by_relation), table, support, empty};
        new (self) Bound{make_temporal_sampler(setup)};
    };
    const auto sample = [](Bound& self, uint64_t batch_key, Array<const Id> seeds, Array<const double> times, int transposed,
                           bool positions) {
        TimedBatch<Id> batch = self.sampler->sample(batch_key, seeds, times, Transposes(transposed), positions);
        std::vector<decltype(as_tuple(batch.blocks[0]))> blocks;
        for (SampledBlock& block : batch.blocks) blocks.push_back(as_tuple(block));
        return std::make_tuple(std::move(batch.src_ids), std::move(batch.src_times), std::move(blocks));
    };
    nb::class_<Bound>(m, name)
        .def("__init__", make, "indptr"_a, "indices"_a, "edge_times"_a, "fanouts"_a, "replace"_a, "recent"_a, "window"_a,
             "edge_types"_a = nb::none(), "by_relation"_a = std::vector<std::vector<int64_t>>(), "table"_a = nb::none(),
             "support"_a = nb::none(), "empty"_a = 0, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>(),
             nb::keep_alive<1, 9>(), nb::keep_alive<1, 11>(), nb::keep_alive<1, 12>(), Unlocked())
        .def("sample", sample, "batch_key"_a, "seeds"_a, "times"_a, "transposed"_a, "positions"_a, Unlocked())
        .def("read_ahead", [](Bound& self) { self.sampler->read_ahead(); })
        .def_prop_ro("scratch_bytes", [](Bound& self) { return self.sampler->scratch_bytes(); });
}

}  // namespace

void bind_temporal(nb::module_& m) {
    bind_sampler<int32_t>(m, "TemporalSampler32");
    bind_sampler<int64_t>(m, "TemporalSampler64");
}

}  // namespace graphmill
