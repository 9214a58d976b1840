"""The artifact store: versions, digests, atomic publication, leases, collection, and readers that compare digests."""
