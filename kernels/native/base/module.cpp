// The Python module kernels._native: one bind_* per .cpp, and the translation of errors.
#include "base/arrays.h"

namespace graphmill {
void bind_random(py::module_& m);
void bind_random_gather(py::module_& m);
void bind_alias(py::module_& m);
void bind_choose(py::module_& m);
void bind_sample(py::module_& m);
void bind_transpose(py::module_& m);
void bind_gather(py::module_& m);
void bind_aggregate(py::module_& m);
void bind_row_traffic(py::module_& m);
void bind_attention(py::module_& m);
void bind_attention_backward(py::module_& m);
void bind_edge_mask(py::module_& m);
void bind_dropout(py::module_& m);
void bind_coefficients(py::module_& m);
void bind_csc(py::module_& m);
void bind_direct_io(py::module_& m);
void bind_edge_order(py::module_& m);
void bind_edge_records(py::module_& m);
void bind_id_set(py::module_& m);
void bind_text_columns(py::module_& m);
void bind_orders(py::module_& m);
void bind_generate(py::module_& m);
void bind_segments(py::module_& m);
void bind_visits(py::module_& m);
void bind_push(py::module_& m);
void bind_pack(py::module_& m);
void bind_copies(py::module_& m);
void bind_reach(py::module_& m);
void bind_weighted_reach(py::module_& m);
void bind_move_rows(py::module_& m);
void bind_ldg(py::module_& m);
void bind_chunk_sets(py::module_& m);
void bind_chunk_schedule(py::module_& m);
void bind_chunk_steps(py::module_& m);
void bind_chunk_order(py::module_& m);
void bind_csr2(py::module_& m);
void bind_admit(py::module_& m);
void bind_row_norms(py::module_& m);
void bind_removal(py::module_& m);

namespace {

void translate(std::exception_ptr thrown) {
    try {
        if (thrown) std::rethrow_exception(thrown);
    } catch (const InputError& error) {
        py::object type = py::module_::import("kernels.errors").attr("InputError");
        py::object value = type(error.what(), error.remedy);
        PyErr_SetObject(type.ptr(), value.ptr());
    }
}

}  // namespace
}  // namespace graphmill

PYBIND11_MODULE(_native, m) {
    m.doc() = "The CPU versions of the kernels. The modules beside it are the front doors.";
    pybind11::register_local_exception_translator(&graphmill::translate);
    graphmill::bind_random(m);
    graphmill::bind_random_gather(m);
    graphmill::bind_alias(m);
    graphmill::bind_choose(m);
    graphmill::bind_sample(m);
    graphmill::bind_transpose(m);
    graphmill::bind_gather(m);
    graphmill::bind_aggregate(m);
    graphmill::bind_row_traffic(m);
    graphmill::bind_attention(m);
    graphmill::bind_attention_backward(m);
    graphmill::bind_edge_mask(m);
    graphmill::bind_dropout(m);
    graphmill::bind_coefficients(m);
    graphmill::bind_csc(m);
    graphmill::bind_direct_io(m);
    graphmill::bind_edge_order(m);
    graphmill::bind_edge_records(m);
    graphmill::bind_id_set(m);
    graphmill::bind_text_columns(m);
    graphmill::bind_orders(m);
    graphmill::bind_generate(m);
    graphmill::bind_segments(m);
    graphmill::bind_visits(m);
    graphmill::bind_push(m);
    graphmill::bind_pack(m);
    graphmill::bind_copies(m);
    graphmill::bind_reach(m);
    graphmill::bind_weighted_reach(m);
    graphmill::bind_move_rows(m);
    graphmill::bind_ldg(m);
    graphmill::bind_chunk_sets(m);
    graphmill::bind_chunk_schedule(m);
    graphmill::bind_chunk_steps(m);
    graphmill::bind_chunk_order(m);
    graphmill::bind_csr2(m);
    graphmill::bind_admit(m);
    graphmill::bind_row_norms(m);
    graphmill::bind_removal(m);
}
