// Devices of torch whose memory is this machine's: see __init__.py.
//
// Memory comes from the heap and is filled with garbage, as fresh memory of a device is. What torch computes goes through the fallback:
// arguments are copied to the CPU, the operation runs there, and results are copied back. Those copies are the simulation's own. All others,
// which the program asked for, are counted.
//
// Streams are as late as a device may be. A kernel, or a copy that nobody waits for, is put on the stream of the thread that launches it and
// runs when an operation of torch on the same stream follows, or when somebody waits for the stream. So what is read from another stream
// without waiting is garbage. Memory that is freed turns to garbage when the stream that it was allocated on has come so far, and later only
// if the tensor was recorded on other streams.
//
// A launch that waits keeps the addresses among its arguments. Memory that is given back meanwhile (a tensor that is freed without having been
// recorded on the launch's stream, pinned memory that goes back to its pool or is unpinned, rows of a peer that are unmapped) is a fault,
// which names the launch: nothing that waits on a stream may read memory that somebody else may have by then. So is a late copy from or to the
// middle of pinned memory, which torch does not find in its pool and lends again before the copy is done.
//
// What a program's speed on a GPU depends on is counted, too: the times that the host waits for the device, and what it launches. A wait is
// a synchronisation, a copy between host and device that is not asked to be late, a number that is read, or an operation of torch whose
// result has a size that only the device knows. A launch is a kernel, or an operation of torch, which may be several kernels.
//
// Each device has streams, a limit and counters of its own. The number of a stream has its device in the upper half; 0 in the lower half is
// the training step's. A copy from one device to another waits for this thread's streams of both, as torch's does on GPUs.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

extern "C" {
struct PyThreadState;
int PyGILState_Check();
PyThreadState* PyEval_SaveThread();
void PyEval_RestoreThread(PyThreadState*);
void simulated_wait_device(int64_t);
}

namespace {

constexpr c10::DeviceType DEVICE = c10::DeviceType::PrivateUse1;
constexpr int NUM_DEVICES = 4;
constexpr int GARBAGE = 0xA5;
constexpr int DEVICE_SHIFT = 32;  // of a stream's number

struct State {
    std::atomic<int64_t> h2d_calls, h2d_bytes, d2h_calls, d2h_bytes, d2d_bytes, live_bytes, peak_bytes, limit_bytes{INT64_MAX};
    std::atomic<int64_t> waits, launches;
};
State states[NUM_DEVICES];
std::atomic<int64_t> next_stream{1};
thread_local int in_fallback = 0;
thread_local int current = 0;  // device of this thread
thread_local c10::StreamId low_streams[NUM_DEVICES];  // streams of this thread, without their devices

c10::Device device_at(int index) { return {DEVICE, static_cast<c10::DeviceIndex>(index)}; }

int index_of(c10::Device device) {
    const int index = device.has_index() ? device.index() : current;
    TORCH_CHECK(index >= 0 && index < NUM_DEVICES, "simulated device ", index, " of ", NUM_DEVICES);
    return index;
}

c10::StreamId numbered(int device, c10::StreamId low) { return static_cast<c10::StreamId>(device) << DEVICE_SHIFT | low; }
c10::StreamId stream_of(int device) { return numbered(device, low_streams[device]); }
int device_of(c10::StreamId stream) { return static_cast<int>(stream >> DEVICE_SHIFT); }
c10::StreamId low_of(c10::StreamId stream) { return stream & ((c10::StreamId{1} << DEVICE_SHIFT) - 1); }

struct OnDevice {
    explicit OnDevice(int device) : before(current) { current = device; }
    ~OnDevice() { current = before; }
    const int before;
};

struct Entry {
    std::function<void()> run;
    std::string name;                  // of a launch
    std::vector<uintptr_t> touches{};  // addresses among a launch's arguments
};

struct Queue {
    std::deque<Entry> waiting;
    const Entry* now = nullptr;  // the entry that runs, and the thread on which it does
    std::thread::id runner;
    int64_t put = 0, done = 0;  // entries so far
    bool running = false;
    std::recursive_mutex turn;  // held while entries run, so that they run in order

    bool pending() const { return running || !waiting.empty(); }
};

std::mutex state;  // of all below; never held while an entry runs
std::map<c10::StreamId, Queue> queues;
std::vector<void*> graveyard;  // freed, but something of another stream that is still to run may touch it
std::map<uintptr_t, size_t> pinned;  // first address of memory of the pool of pinned memory -> its bytes
std::vector<std::string> faults;
std::map<int64_t, int64_t> stamps;  // number -> nanoseconds

void enqueue(c10::StreamId stream, Entry entry) {
    const std::lock_guard<std::mutex> hold(state);
    Queue& queue = queues[stream];
    queue.waiting.push_back(std::move(entry));
    ++queue.put;
}

// Memory is given back: a launch that may still touch it, on a stream besides those that come before, is a fault.
void given_back(const void* memory, size_t bytes, const std::string& what, const std::set<c10::StreamId>& before = {}) {
    const uintptr_t first = reinterpret_cast<uintptr_t>(memory);
    const auto look = [&](const Entry& entry) {
        for (const uintptr_t place : entry.touches) {
            if (first <= place && place < first + bytes) {
                faults.push_back(what + " (" + std::to_string(bytes) + " bytes) is given back while " + entry.name + " may still touch it");
                return;
            }
        }
    };
    for (const auto& [id, queue] : queues) {
        if (before.count(id)) continue;
        if (queue.now && queue.runner != std::this_thread::get_id()) look(*queue.now);
        for (const Entry& entry : queue.waiting) look(entry);
    }
}

// A copy that nobody waits for: torch keeps pinned memory for it only if the copy begins where the memory does.
void copied_late(const void* memory) {
    const std::lock_guard<std::mutex> hold(state);
    const uintptr_t place = reinterpret_cast<uintptr_t>(memory);
    auto next = pinned.upper_bound(place);
    if (next == pinned.begin()) return;
    const auto [first, bytes] = *--next;
    if (first < place && place < first + bytes) faults.push_back("a late copy begins in the middle of pinned memory");
}

bool anything_pending() {
    for (const auto& [id, queue] : queues) {
        if (queue.pending()) return true;
    }
    return false;
}

// Runs what was put on a stream so far.
void flush(c10::StreamId stream) {
    Queue* queue;
    {
        const std::lock_guard<std::mutex> hold(state);
        queue = &queues[stream];
        if (!queue->pending()) return;
    }
    // Entries may need Python's lock.
    PyThreadState* python = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    {
        const std::lock_guard<std::recursive_mutex> turn(queue->turn);
        const bool outermost = !queue->running;
        for (;;) {
            Entry entry;
            const Entry* outer;
            {
                const std::lock_guard<std::mutex> hold(state);
                if (queue->waiting.empty()) break;
                entry = std::move(queue->waiting.front());
                queue->waiting.pop_front();
                queue->running = true;
                outer = queue->now;
                queue->now = &entry, queue->runner = std::this_thread::get_id();
            }
            entry.run();
            const std::lock_guard<std::mutex> hold(state);
            queue->now = outer;
            ++queue->done;
        }
        const std::lock_guard<std::mutex> hold(state);
        if (outermost) queue->running = false;
        if (!anything_pending()) {
            for (void* whole : graveyard) std::free(whole);
            graveyard.clear();
        }
    }
    if (python) PyEval_RestoreThread(python);
}

// The host waits for what was put on a stream so far.
void await(c10::StreamId stream) {
    ++states[device_of(stream)].waits;
    flush(stream);
}

void flush_all(int device) {
    std::vector<c10::StreamId> streams;
    {
        const std::lock_guard<std::mutex> hold(state);
        for (const auto& [id, queue] : queues) {
            if (device_of(id) == device) streams.push_back(id);
        }
    }
    for (const c10::StreamId stream : streams) flush(stream);
}

// Stands in front of an allocation.
struct Head {
    int64_t bytes;
    int device;
    int num_streams;
    c10::StreamId streams[16];  // the one it was allocated on, then those it was recorded on
};
constexpr size_t HEAD = 256;
static_assert(sizeof(Head) <= HEAD);

Head* head_of(void* data) { return reinterpret_cast<Head*>(static_cast<char*>(data) - HEAD); }

// The next owner of the memory writes to it.
void bury(void* whole) {
    std::memset(static_cast<char*>(whole) + HEAD, GARBAGE, static_cast<Head*>(whole)->bytes);
    graveyard.push_back(whole);
}

void release(void* data) {
    Head* head = head_of(data);
    states[head->device].live_bytes -= head->bytes;
    const std::lock_guard<std::mutex> hold(state);
    given_back(data, head->bytes, "memory of a device", {head->streams, head->streams + head->num_streams});
    std::vector<Queue*> before;
    for (int i = 0; i < head->num_streams; ++i) {
        Queue& queue = queues[head->streams[i]];
        if (queue.pending()) before.push_back(&queue);
    }
    if (before.empty()) {
        if (anything_pending()) bury(head);
        else std::free(head);
        return;
    }
    auto left = std::make_shared<size_t>(before.size());
    for (Queue* queue : before) {
        queue->waiting.push_back({[left, head] {
            const std::lock_guard<std::mutex> hold(state);
            if (--*left == 0) bury(head);
        }});
        ++queue->put;
    }
}

void record_on(void* data, c10::StreamId stream) {
    if (!data) return;
    const std::lock_guard<std::mutex> hold(state);
    Head* head = head_of(data);
    for (int i = 0; i < head->num_streams; ++i) {
        if (head->streams[i] == stream) return;
    }
    TORCH_CHECK(head->num_streams < 16, "a tensor on more than 16 streams");
    head->streams[head->num_streams++] = stream;
}

struct DeviceMemory final : c10::Allocator {
    c10::DataPtr allocate(size_t count) override {
        State& here = states[current];
        const int64_t bytes = static_cast<int64_t>(count), live = here.live_bytes += bytes;
        if (live > here.limit_bytes) {
            here.live_bytes -= bytes;
            TORCH_CHECK_WITH(OutOfMemoryError, false, "simulated device out of memory: tried to allocate ", bytes, " bytes where ",
                             here.limit_bytes - (live - bytes), " are free");
        }
        int64_t peak = here.peak_bytes;
        while (live > peak && !here.peak_bytes.compare_exchange_weak(peak, live)) {}
        void* whole = nullptr;
        TORCH_CHECK(posix_memalign(&whole, HEAD, HEAD + count) == 0, "out of host memory");
        *static_cast<Head*>(whole) = {bytes, current, 1, {stream_of(current)}};
        char* data = static_cast<char*>(whole) + HEAD;
        std::memset(data, GARBAGE, count);
        return {data, data, &release, device_at(current)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &release; }
    void copy_data(void* to, const void* from, size_t count) const override { std::memcpy(to, from, count); }
};
DeviceMemory memory;
REGISTER_ALLOCATOR(DEVICE, &memory);

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override { return DEVICE; }
    c10::Device exchangeDevice(c10::Device device) const override {
        const int before = current;
        current = index_of(device);
        return device_at(before);
    }
    c10::Device getDevice() const override { return device_at(current); }
    void setDevice(c10::Device device) const override { current = index_of(device); }
    void uncheckedSetDevice(c10::Device device) const noexcept override { current = device.has_index() ? device.index() : current; }
    c10::Stream getStream(c10::Device device) const override { return named(stream_of(index_of(device))); }
    c10::Stream getDefaultStream(c10::Device device) const override { return named(numbered(index_of(device), 0)); }
    c10::Stream getNewStream(c10::Device device, int) const override { return named(numbered(index_of(device), next_stream++)); }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
    c10::Stream exchangeStream(c10::Stream stream) const override {
        const int device = device_of(stream.id());
        const auto before = named(stream_of(device));
        low_streams[device] = low_of(stream.id());
        return before;
    }
    void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
    // An event is the stream that it was recorded on: whoever waits for it waits for all of the stream.
    void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
        *event = reinterpret_cast<void*>(stream.id() + 1);
    }
    void block(void* event, const c10::Stream&) const override {
        if (event) flush(reinterpret_cast<c10::StreamId>(event) - 1);
    }
    bool queryEvent(void*) const override { return true; }
    bool queryStream(const c10::Stream&) const override { return true; }
    void synchronizeStream(const c10::Stream& stream) const override { await(stream.id()); }
    void synchronizeEvent(void* event) const override {
        if (event) await(reinterpret_cast<c10::StreamId>(event) - 1);
    }
    void synchronizeDevice(const c10::DeviceIndex device) const override { simulated_wait_device(device); }
    void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override { record_on(data.get(), stream.id()); }
    c10::DeviceIndex deviceCount() const noexcept override { return NUM_DEVICES; }

  private:
    static c10::Stream named(c10::StreamId id) { return c10::Stream(c10::Stream::UNSAFE, device_at(device_of(id)), id); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
    bool isBuilt() const override { return true; }
    bool isAvailable() const override { return true; }
    bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
    c10::DeviceIndex deviceCount() const override { return NUM_DEVICES; }
    void setCurrentDevice(c10::DeviceIndex device) const override { current = device; }
    c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current); }
    c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
        const int before = current;
        if (device >= 0) current = device;
        return static_cast<c10::DeviceIndex>(before);
    }
    c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
    void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
        auto* held = storage.unsafeGetStorageImpl();
        const OnDevice here(index_of(storage.device()));
        flush(stream_of(current));
        c10::DataPtr larger = memory.allocate(bytes);
        std::memcpy(larger.get(), held->data(), std::min(bytes, held->nbytes()));
        held->set_data_ptr_noswap(std::move(larger));
        held->set_nbytes(bytes);
    }
};

at::Tensor empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
    const OnDevice here(index_of(device.value_or(device_at(current))));
    return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype),
                                     format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
    const OnDevice here(index_of(device.value_or(device_at(current))));
    return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                             c10::dtype_or_default(dtype));
}

// The same memory as the CPU's operations take it.
at::Tensor on_cpu(const at::Tensor& tensor) {
    if (tensor.is_cpu()) return tensor;
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

// Waits for this thread's stream of a tensor's device.
void flush_for(const at::Tensor& tensor) {
    if (!tensor.is_cpu()) flush(stream_of(tensor.device().index()));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
    const bool crosses = from.is_cpu() != to.is_cpu(), late = non_blocking && crosses && in_fallback == 0;
    const int device = (to.is_cpu() ? from : to).device().index();
    if (late) copied_late((from.is_cpu() ? from : to).data_ptr());
    if (late && from.is_cpu()) {
        enqueue(stream_of(device), {[from, there = on_cpu(to)] { there.copy_(from); }});
    } else if (late) {
        enqueue(stream_of(device), {[there = on_cpu(from), to] { to.copy_(there); }});
    } else {
        flush_for(from);
        flush_for(to);
        on_cpu(to).copy_(on_cpu(from));
    }
    if (in_fallback == 0) {
        const int64_t bytes = from.numel() * static_cast<int64_t>(from.element_size());
        State& here = states[device];
        if (crosses && !late) ++here.waits;
        if (from.is_cpu()) ++here.h2d_calls, here.h2d_bytes += bytes;
        else if (to.is_cpu()) ++here.d2h_calls, here.d2h_bytes += bytes;
        else if (from.device() != to.device()) here.d2d_bytes += bytes;
        else ++here.launches;
    }
    return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
    if (to.sizes() != from.sizes()) to.resize_(from.sizes());
    return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& tensor) {
    flush_for(tensor);
    State& here = states[tensor.device().index()];
    if (in_fallback == 0) ++here.waits, ++here.d2h_calls, here.d2h_bytes += static_cast<int64_t>(tensor.element_size());
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

// As on a GPU: a tensor of the host or of another device among those of a device is a mistake, but for a single number of the host.
void refuse_mixed(const c10::OperatorHandle& op, const at::Tensor& tensor, std::optional<c10::Device>& device) {
    if (!tensor.defined() || (tensor.is_cpu() && tensor.dim() == 0)) return;
    if (!device) device = tensor.device();
    TORCH_CHECK(*device == tensor.device(), "Expected all tensors to be on the same device, but found at least two devices, ", *device, " and ",
                tensor.device(), "! (", op.schema().name(), ")");
}

bool has_mask(const c10::IValue& value) {
    if (!value.isList()) return false;
    for (const c10::IValue& each : value.toListRef()) {
        if (each.isTensor() && each.toTensor().defined() && (each.toTensor().scalar_type() == at::kBool || each.toTensor().scalar_type() == at::kByte))
            return true;
    }
    return false;
}

// As on a GPU: the host waits for the size of the result.
bool waits_for_size(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    static const std::set<std::string> always = {
        "aten::nonzero", "aten::masked_select", "aten::_unique", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive",
        "aten::unique_dim_consecutive", "aten::bincount", "aten::equal"};
    static const std::set<std::string> by_mask = {"aten::index", "aten::index_put_", "aten::_index_put_impl_"};
    const std::string& name = op.schema().name();
    const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
    if (always.count(name)) return true;
    if (by_mask.count(name)) return has_mask(arguments[1]);
    return name == "aten::repeat_interleave" && arguments.back().isNone();
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    std::optional<c10::Device> device;
    for (const c10::IValue& value : torch::jit::last(*stack, op.schema().arguments().size())) {
        if (value.isTensor()) refuse_mixed(op, value.toTensor(), device);
        if (value.isTensorList()) {
            bool ours = false;
            for (const at::Tensor& each : value.toTensorVector()) ours |= each.defined() && !each.is_cpu();
            // Lists of single numbers (the optimiser's steps) stay on the host.
            for (const at::Tensor& each : value.toTensorVector()) {
                if (ours) refuse_mixed(op, each, device);
            }
        }
    }
    const OnDevice here(index_of(device.value_or(device_at(current))));
    flush(stream_of(current));
    if (in_fallback == 0) {
        ++states[current].launches;
        if (waits_for_size(op, *stack)) ++states[current].waits;
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

extern "C" int64_t simulated_devices() { return NUM_DEVICES; }

// Calls and bytes from host to a device, calls and bytes back, bytes that came from devices, waits of the host, launches, live bytes, the
// most of them.
extern "C" void simulated_counts(int64_t device, int64_t* out) {
    const State& here = states[device];
    const int64_t values[] = {here.h2d_calls, here.h2d_bytes, here.d2h_calls, here.d2h_bytes, here.d2d_bytes,
                              here.waits,     here.launches,  here.live_bytes, here.peak_bytes};
    std::memcpy(out, values, sizeof values);
}

extern "C" void simulated_limit(int64_t device, int64_t bytes) { states[device].limit_bytes = bytes < 0 ? INT64_MAX : bytes; }

extern "C" void simulated_forget_peak(int64_t device) { states[device].peak_bytes = states[device].live_bytes.load(); }

extern "C" int64_t simulated_current_device() { return current; }

extern "C" void simulated_set_device(int64_t device) { current = index_of(device_at(static_cast<int>(device))); }

// Number of this thread's stream of a device.
extern "C" int64_t simulated_stream(int64_t device) { return stream_of(static_cast<int>(device)); }

// Makes a stream this thread's of its device and returns the one before.
extern "C" int64_t simulated_use_stream(int64_t stream) {
    const int64_t before = stream_of(device_of(stream));
    low_streams[device_of(stream)] = low_of(stream);
    return before;
}

extern "C" int64_t simulated_new_stream(int64_t device) { return numbered(static_cast<int>(device), next_stream++); }

// Puts the launch of a number on this thread's stream of a device; `run` gets the number when its turn comes. `touches` are the addresses of
// the memory that it may touch.
extern "C" void simulated_launch(int64_t device, void (*run)(int64_t), int64_t number, const char* name, const uint64_t* touches, int64_t count) {
    ++states[device].launches;
    enqueue(stream_of(static_cast<int>(device)), {[run, number] { run(number); }, name, {touches, touches + count}});
}

// The devices' clock, in nanoseconds.
extern "C" int64_t simulated_clock() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// Number of a stamp of the time when a stream has come so far.
extern "C" int64_t simulated_stamp(int64_t stream) {
    static std::atomic<int64_t> next{1};
    const int64_t number = next++;
    enqueue(stream, {[number] {
        const std::lock_guard<std::mutex> hold(state);
        stamps[number] = simulated_clock();
    }});
    return number;
}

// The time of a stamp, which is forgotten; 0 if its stream has not come so far.
extern "C" int64_t simulated_stamped(int64_t number) {
    const std::lock_guard<std::mutex> hold(state);
    const auto found = stamps.extract(number);
    return found ? found.mapped() : 0;
}

// Memory of the host is lent from a pool of pinned memory.
extern "C" void simulated_lend(uint64_t memory, int64_t bytes) {
    const std::lock_guard<std::mutex> hold(state);
    pinned[memory] = static_cast<size_t>(bytes);
}

// Memory that launches may touch is given back.
extern "C" void simulated_give_back(uint64_t memory, int64_t bytes, const char* what) {
    const std::lock_guard<std::mutex> hold(state);
    pinned.erase(memory);
    given_back(reinterpret_cast<void*>(memory), static_cast<size_t>(bytes), what);
}

// Number of faults so far; the first is written to `out`, of some bytes, and all are forgotten if `forget`.
extern "C" int64_t simulated_faults(char* out, int64_t bytes, bool forget) {
    const std::lock_guard<std::mutex> hold(state);
    const auto count = static_cast<int64_t>(faults.size());
    if (count) std::strncpy(out, faults.front().c_str(), static_cast<size_t>(bytes) - 1);
    if (forget) faults.clear();
    return count;
}

// All that was put on the streams of a device so far is done; the host waits for it once.
extern "C" void simulated_wait_device(int64_t device) {
    ++states[device].waits;
    flush_all(static_cast<int>(device));
}

// The host waits for a stream.
extern "C" void simulated_wait(int64_t stream) { await(stream); }

// What this thread launches from now on comes after what is on a stream now; the host does not wait.
extern "C" void simulated_follow(int64_t stream) { flush(stream); }

// An event: the number of entries that were put on a stream so far, and whether so many are done.
extern "C" int64_t simulated_mark(int64_t stream) {
    const std::lock_guard<std::mutex> hold(state);
    return queues[stream].put;
}

extern "C" int64_t simulated_passed(int64_t stream, int64_t mark) {
    const std::lock_guard<std::mutex> hold(state);
    return queues[stream].done >= mark;
}

// Tells that memory of a device is used by a stream.
extern "C" void simulated_record(void* data, int64_t stream) { record_on(data, stream); }
