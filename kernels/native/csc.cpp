#include "arrays.h"
namespace graphmill { void bind_csc(py::module_&) {} }
