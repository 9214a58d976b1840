"""The artifacts of one home: reading, writing, leases, collection, repair, bundles."""
