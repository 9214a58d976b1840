// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "history/history.h"

namespace graphmill {
namespace {

// A block as kernels/history/csr2.py gives it, in the order of BlockArrays.
using Given = std::tuple<int64_t, int64_t, Array<const int32_t>, Array<const int32_t>, Array<const int32_t>, Optional<const int32_t>,
                         Table, std::optional<Table>, std::array<std::optional<Table>, BY_EDGE>>;

BlockArrays named(const Given& given) {
    return std::apply([](const auto&... parts) { return BlockArrays{parts...}; }, given);
}

// An array of the type of the block's list.
nb::object typed(Buffer<char>& buffer, const std::optional<Table>& list) {
    if (!list) return nb::none();
    return owned(std::move(buffer), {static_cast<size_t>(buffer.size() / list->type.bytes)}, dtype_of(list->type));
}

nb::tuple arrays_of(PrunedArrays& left, const BlockArrays& block) {
    const auto by_edge = [&](int column) { return typed(left.by_edge[column], block.by_edge[column]); };
    return nb::make_tuple(std::move(left.start), std::move(left.end), std::move(left.indices), typed(left.src_ids, block.src_ids),
                          std::move(left.dst_pos), typed(left.self_weight, block.self_weight), by_edge(0), by_edge(1), by_edge(2),
                          by_edge(3), std::move(left.computed), std::move(left.hist_pos), std::move(left.hist_slot));
}

// Returns a list with the arrays of each block, as kernels/history/csr2.py takes them, and the places of the inputs that are left.
nb::tuple prune_blocks(const std::vector<Given>& given, const std::vector<Array<const int32_t>>& slots, int threads) {
    std::vector<BlockArrays> blocks;
    for (const Given& each : given) blocks.push_back(named(each));
    auto [left, origin] = [&] {
        const nb::gil_scoped_release unlocked;
        return prune(blocks, slots, threads);
    }();
    nb::list arrays;
    for (size_t l = 0; l < blocks.size(); ++l) arrays.append(arrays_of(left[l], blocks[l]));
    return nb::make_tuple(arrays, std::move(origin));
}

template <class Id>
void bind(nb::module_& m) {
    m.def("look_up", &look_up<Id>, "slot_of"_a, "first"_a, "num_nodes"_a, "born"_a, "ids"_a, "now"_a, "t_stale"_a, "out"_a, "threads"_a,
          Unlocked());
}

}  // namespace

void bind_history(nb::module_& m) {
    bind<int32_t>(m);
    bind<int64_t>(m);
    m.def("admit", &admit, "slot_of"_a, "owner"_a, "born"_a, "where"_a, "layer_ptr"_a, "norms"_a, "saved"_a, "computed"_a, "keep"_a,
          "least"_a, "head"_a, "free"_a.none(), "now"_a, "repeated"_a, "threads"_a, Unlocked());
    m.def("prune", &prune_blocks, "blocks"_a, "slots"_a, "threads"_a);
    m.def("remove_in_edges", &remove_in_edges, "start"_a, "end"_a, "rows"_a, Unlocked());
    m.def("remove_from_csr", &remove_from_csr, "indptr"_a, "indices"_a, "rows"_a, Unlocked());
    m.def("remove_from_coo", &remove_from_coo, "dst"_a, "src"_a, "rows"_a, Unlocked());
    m.def("row_norms", &row_norms<float>, "rows"_a, "out"_a, "threads"_a, Unlocked());
    m.def("row_norms", &row_norms<double>, "rows"_a, "out"_a, "threads"_a, Unlocked());
}

}  // namespace graphmill
