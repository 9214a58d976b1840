// What Python sees of the kernels in this room.
#include "base/bind.h"
#include "blocks/blocks.h"

namespace graphmill {

void bind_blocks(nb::module_& m) {
    const auto make_transpose = [](int64_t num_src, Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices) {
        Transpose made = transpose(num_src, start, end, indices);
        return std::make_tuple(std::move(made.start), std::move(made.edge), std::move(made.dst));
    };
    m.def("transpose", make_transpose, "num_src"_a, "start"_a, "end"_a, "indices"_a, Unlocked());
    m.def("gcn_weights", &gcn_weights, "start"_a, "end"_a, "indices"_a, "dst_in"_a, "dst_out"_a, "src_out"_a, "sampled"_a, "weight"_a,
          "self_weight"_a, Unlocked());
}

}  // namespace graphmill
