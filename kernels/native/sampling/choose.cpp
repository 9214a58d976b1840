// The choice of one row by itself; see choose.h.
#include "sampling/choose.h"

#include "base/arrays.h"

namespace graphmill {
namespace {

// For tests: both ways of making the choice must agree.
Array<uint32_t> choose(uint64_t row_key, uint32_t degree, int64_t taken, bool replace, bool anywhere) {
    Buffer<uint32_t> out(taken + Chooser::SPACE);
    Chooser chooser;
    if (anywhere) {
        chooser.anywhere(row_key, degree, taken, replace, out.data());
    } else {
        chooser(row_key, degree, taken, replace, out.data());
    }
    out.shrink(taken);
    return out.release();
}

}  // namespace

void bind_choose(py::module_& m) {
    m.def("choose", &choose, py::arg("row_key"), py::arg("degree"), py::arg("taken"), py::arg("replace"),
          py::arg("anywhere"));
}

}  // namespace graphmill
