"""The technique `fullgraph`: passes over all nodes in chunks, larger than the device (HongTu, sections 4 to 6)."""
