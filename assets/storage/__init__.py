"""The artifact store: versions, digests, atomic publication, leases, collection, and readers that compare digests.

Folders import those before them only: system and names, files, local (the artifacts of one home), remote (the object store of several
homes, which publishes in a home what it fetches). `store.py` chooses what stands behind a home when it is opened.
"""
