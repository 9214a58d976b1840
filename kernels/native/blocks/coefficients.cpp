// The edge weights of a graph convolution; see kernels/blocks/coefficients.py.
#include "blocks/blocks.h"

#include <cmath>
#include <vector>

namespace graphmill {

// degree[i] = whole-graph degree of the i-th node; roots are taken once a node and multiplied once an edge, in float64.
void gcn_weights(Array<const int32_t> start, Array<const int32_t> end, Array<const int32_t> indices, Array<const int32_t> dst_in,
                 Array<const int32_t> dst_out, Array<const int32_t> src_out, bool sampled, Array<float> weight,
                 Array<float> self_weight) {
    const int32_t *begins = start.data(), *ends = end.data(), *source = indices.data();
    const int32_t *in_degree = dst_in.data(), *own_out = dst_out.data(), *out_degree = src_out.data();
    float *weights = weight.data(), *own = self_weight.data();
    const int64_t num_dst = start.size(), num_src = src_out.size(), num_edges = indices.size();
    check_block(num_dst, num_src, begins, ends, source, num_edges);
    std::vector<double> root(num_src);
    for (int64_t s = 0; s < num_src; ++s) root[s] = 1.0 / std::sqrt(out_degree[s] + 1.0);
    for (int64_t e = 0; e < num_edges; ++e) weights[e] = 0.0f;  // edges that were removed
    for (int64_t i = 0; i < num_dst; ++i) {
        const double mine = 1.0 / std::sqrt(in_degree[i] + 1.0);
        own[i] = static_cast<float>(mine * (1.0 / std::sqrt(own_out[i] + 1.0)));
        const double rescaled = sampled ? mine * (double(in_degree[i]) / double(ends[i] - begins[i])) : mine;
        for (int32_t e = begins[i]; e < ends[i]; ++e) weights[e] = static_cast<float>(rescaled * root[source[e]]);
    }
}

}  // namespace graphmill
