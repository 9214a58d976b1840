// The Python module graphmill.kernels._native: one bind.cpp per room, and the translation of errors.
#include "base/bind.h"
#include "base/input_error.h"

namespace graphmill {
void bind_base(nb::module_& m);
void bind_blocks(nb::module_& m);
void bind_chunks(nb::module_& m);
void bind_disk_cache(nb::module_& m);
void bind_graph(nb::module_& m);
void bind_history(nb::module_& m);
void bind_hotness(nb::module_& m);
void bind_layers(nb::module_& m);
void bind_rows(nb::module_& m);
void bind_sampling(nb::module_& m);
void bind_temporal(nb::module_& m);

namespace {

void translate(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const InputError& error) {
        const nb::object type = nb::module_::import_("graphmill.kernels.errors").attr("InputError");
        PyErr_SetObject(type.ptr(), type(error.what(), error.remedy).ptr());
    }
}

}  // namespace
}  // namespace graphmill

NB_MODULE(MODULE_NAME, m) {
    m.doc() = "The CPU versions of the kernels. The modules beside it are the front doors.";
    nanobind::set_leak_warnings(false);
    nanobind::register_exception_translator(&graphmill::translate);
    graphmill::bind_base(m);
    graphmill::bind_blocks(m);
    graphmill::bind_chunks(m);
    graphmill::bind_disk_cache(m);
    graphmill::bind_graph(m);
    graphmill::bind_history(m);
    graphmill::bind_hotness(m);
    graphmill::bind_layers(m);
    graphmill::bind_rows(m);
    graphmill::bind_sampling(m);
    graphmill::bind_temporal(m);
}
