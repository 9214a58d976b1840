"""The object store behind the homes: `$GRAPHMILL_STORE`, a URL such as s3://BUCKET/PREFIX, by which machines share artifacts.

    artifacts/STAGE/VERSION.json              the entry: manifest and run.json of an artifact, and the name of its upload
    content/STAGE/VERSION/UPLOAD/FILE         its files, and block_digests.bin
    leases/HOLDER.json                        what a living process reads or builds
    checkpoints/VERSION.safetensors           of trainings that have not ended
    raw/KEY.json                              digests of raw files, for machines that do not have them

The home stays the place that readers map and read: files are fetched into it when they are first read, compared with their digests as they
arrive, and published there by a rename as a build is. An artifact is in the object store when its entry is. The entry is written last, and
only if there is none yet: of two writers of one version one wins, and the other takes the stored artifact. The files of each writer have
names of their own, so none overwrites those of another; what a killed one leaves has no entry, and `graphmill gc` removes it.

Neither obstore is imported nor a request made unless the variable is set. Every request raises `InputError` if the object store cannot be
used.
"""
