// A device of torch whose memory is this machine's: see __init__.py.
//
// Memory comes from the heap and is filled with garbage, as fresh memory of a device is. Streams and events do nothing, since every operation
// is done when its call returns. What torch computes goes through the fallback: arguments are copied to the CPU, the operation runs there, and
// results are copied back. Those copies are the simulation's own. All others, which the program asked for, are counted.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

constexpr c10::DeviceType DEVICE = c10::DeviceType::PrivateUse1;
const c10::Device THE_DEVICE(DEVICE, 0);

std::atomic<int64_t> h2d_calls, h2d_bytes, d2h_calls, d2h_bytes, d2d_bytes, live_bytes, peak_bytes, limit_bytes{INT64_MAX}, next_stream{1};
thread_local int in_fallback = 0;
thread_local c10::StreamId stream_id = 0;

// The bytes of an allocation stand in front of it.
constexpr size_t HEAD = 256;

void release(void* data) {
    char* whole = static_cast<char*>(data) - HEAD;
    int64_t bytes;
    std::memcpy(&bytes, whole, sizeof bytes);
    live_bytes -= bytes;
    std::free(whole);
}

struct DeviceMemory final : c10::Allocator {
    c10::DataPtr allocate(size_t count) override {
        const int64_t bytes = static_cast<int64_t>(count), live = live_bytes += bytes;
        if (live > limit_bytes) {
            live_bytes -= bytes;
            TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated device out of memory: tried to allocate ", bytes, " bytes where ",
                             limit_bytes - (live - bytes), " are free");
        }
        int64_t peak = peak_bytes;
        while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {}
        void* whole = nullptr;
        TORCH_CHECK(posix_memalign(&whole, HEAD, HEAD + count) == 0, "out of host memory");
        std::memcpy(whole, &bytes, sizeof bytes);
        char* data = static_cast<char*>(whole) + HEAD;
        std::memset(data, 0xA5, count);
        return {data, data, &release, THE_DEVICE};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};
DeviceMemory memory;
REGISTER_ALLOCATOR(DEVICE, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return DEVICE; }
    c10::Device exchangeDevice(c10::Device) const override { return THE_DEVICE; }
    c10::Device getDevice() const override { return THE_DEVICE; }
    void setDevice(c10::Device) const override {}
    void uncheckedSetDevice(c10::Device) const noexcept override {}
    c10::Stream getStream(c10::Device) const override { return named(stream_id); }
    c10::Stream getDefaultStream(c10::Device) const override { return named(0); }
    c10::Stream getNewStream(c10::Device, int) const override { return named(next_stream++); }
    c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return named(next_stream++); }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        const auto before = named(stream_id);
        stream_id = stream.id();
        return before;
    }
    void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
    void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
        static int any;
        *event = &any;
    }
    void block(void*, const c10::Stream&) const override {}
    bool queryEvent(void*) const override { return true; }
    bool queryStream(const c10::Stream&) const override { return true; }
    void synchronizeStream(const c10::Stream&) const override {}
    void synchronizeEvent(void*) const override {}
    void synchronizeDevice(const c10::DeviceIndex) const override {}
    void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}
    c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  private:
    static c10::Stream named(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, THE_DEVICE, id); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return 1; }
    void setCurrentDevice(c10::DeviceIndex) const override {}
    c10::DeviceIndex getCurrentDevice() const override { return 0; }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
    void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
        auto* held = storage.unsafeGetStorageImpl();
        c10::DataPtr larger = memory.allocate(bytes);
        std::memcpy(larger.get(), held->data(), std::min(bytes, held->nbytes()));
        held->set_data_ptr_noswap(std::move(larger));
        held->set_nbytes(bytes);
    }
};

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device>,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
    return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype),
                                     format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device>, std::optional<bool>) {
    return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::dtype_or_default(dtype));
}

// The same memory as the CPU's operations take it.
at::Tensor on_cpu(const at::Tensor& tensor) {
    if (tensor.is_cpu()) return tensor;
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
    on_cpu(to).copy_(on_cpu(from));
    if (in_fallback == 0) {
        const int64_t bytes = from.numel() * static_cast<int64_t>(from.element_size());
        if (from.is_cpu()) ++h2d_calls, h2d_bytes += bytes;
        else if (to.is_cpu()) ++d2h_calls, d2h_bytes += bytes;
        else d2d_bytes += bytes;
    }
    return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
    if (to.sizes() != from.sizes()) to.resize_(from.sizes());
    return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
    if (in_fallback == 0) ++d2h_calls, d2h_bytes += static_cast<int64_t>(tensor.element_size());
    return on_cpu(tensor).item();
}

const at::Tensor& resize(const at::Tensor& tensor, c10::SymIntArrayRef size, std::optional<at::MemoryFormat> format) {
    return at::native::resize_(tensor, C10_AS_INTARRAYREF_SLOW(size), format);
}

at::Tensor view(const at::Tensor& tensor, c10::SymIntArrayRef size) {
    return at::native::view(tensor, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor as_strided(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride, std::optional<c10::SymInt> offset) {
    std::optional<int64_t> start;
    if (offset) start = offset->expect_int();
    return at::native::as_strided_tensorimpl(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), start);
}

at::Tensor reshape_alias(const at::Tensor& tensor, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
    return at::native::_reshape_alias(tensor, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride));
}

// As on a GPU: a tensor of the host among those of the device is a mistake, but for a single number.
void refuse_mixed(const c10::OperatorHandle& op, const at::Tensor& tensor) {
    TORCH_CHECK(!tensor.defined() || !tensor.is_cpu() || tensor.dim() == 0,
                "Expected all tensors to be on the same device, but found at least two devices, simulated:0 and cpu! (", op.schema().name(), ")");
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size())) {
        if (value.isTensor()) refuse_mixed(op, value.toTensor());
        if (value.isTensorList()) {
            bool ours = false;
            for (const at::Tensor& each : value.toTensorVector()) ours |= each.defined() && !each.is_cpu();
            // Lists of single numbers (the optimiser's steps) stay on the host.
            for (const at::Tensor& each : value.toTensorVector()) {
                if (ours) refuse_mixed(op, each);
            }
        }
    }
    struct Inside {
        Inside() { ++in_fallback; }
        ~Inside() { --in_fallback; }
    } inside;
    at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
    m.impl("empty.memory_format", &empty);
    m.impl("empty_strided", &empty_strided);
    m.impl("_copy_from", &copy_from);
    m.impl("_copy_from_and_resize", &copy_from_and_resize);
    m.impl("_local_scalar_dense", &local_scalar_dense);
    m.impl("resize_", &resize);
    m.impl("view", &view);
    m.impl("as_strided", &as_strided);
    m.impl("_reshape_alias", &reshape_alias);
    m.impl("unfold", &at::native::unfold);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

// What autocast computes from bfloat16 on a GPU, as far as models here use it.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
    KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
    KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
    KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
    KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
    KERNEL_PRIVATEUSEONE(layer_norm, fp32)
}

}  // namespace

extern "C" void simulated_register() {
    static Hooks hooks;
    at::RegisterPrivateUse1HooksInterface(&hooks);
}

// Calls and bytes from host to device, calls and bytes back, bytes on the device, live bytes, the most of them.
extern "C" void simulated_counts(int64_t* out) {
    const int64_t values[] = {h2d_calls, h2d_bytes, d2h_calls, d2h_bytes, d2d_bytes, live_bytes, peak_bytes};
    std::memcpy(out, values, sizeof values);
}

extern "C" void simulated_limit(int64_t bytes) { limit_bytes = bytes < 0 ? INT64_MAX : bytes; }

extern "C" void simulated_forget_peak() { peak_bytes = live_bytes.load(); }
