// The kernels of this room as bind.cpp sees them; the modules of kernels/rows/ are their front doors and say what they compute.
// page_reader.h has the reader of files.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/array.h"

namespace graphmill {

template <class Id>
void gather(Table table, Array<const Id> node_ids, WrittenTable out, int threads);

// Row: the type of row_of's elements, int32_t or int64_t.
template <class Id, class Row>
void gather_by_row(Table table, Array<const Id> node_ids, Array<const Row> row_of, WrittenTable out, int threads);

// stored: the type of all rows.
void gather_tiered(ElementType stored, std::optional<Table> device, std::optional<Table> host, std::optional<Table> staged,
                   const std::vector<Table>& peers, int64_t peer_stride, Array<const int32_t> slots, WrittenTable out, int threads);

// The check of gather_tiered for slots that another kernel will follow. counts: rows of the three tiers, -1 for an absent one.
void check_slots(Array<const int32_t> slots, std::array<int64_t, 3> counts, const std::vector<int64_t>& peer_counts,
                 int64_t peer_stride);

// The three ways of moving rows. Lists of rows are i32[k] or i64[k]; without one rows are taken in order.
void place_rows(Table source, std::optional<Table> source_rows, WrittenTable out, std::optional<Table> out_rows, int threads);
void add_rows(Table source, std::optional<Table> source_rows, WrittenTable out, std::optional<Table> out_rows, int threads);
void take_rows(WrittenTable source, std::optional<Table> source_rows, WrittenTable out, std::optional<Table> out_rows, int threads);

// Returns 0, or the errno that says why this process can have no io_uring.
int ring_errno();

// out[i] = the digest of page i.
void page_digests(Array<const uint8_t> pages, Array<uint64_t> out);

}  // namespace graphmill
