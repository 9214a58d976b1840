"""HongTu's chunks of a full-graph pass: cutting, neighbour sets, schedules, rows of the merged buffer, steps, device memory."""
