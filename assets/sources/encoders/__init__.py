"""Encoders turn the columns of a table into numbers: `encode` of `[features]` and of a node type says which column gets which.

    rules.py          the keys: which encoder a column gets, by its name or a pattern
    columns.py        the encoders of a table, their checks by the headers, their fit, and the encoded rows as a block;
                      numbers that look like a mark for a missing value, which `inspect` tells
    training_rows.py  the values of the training rows, staged on disk
    encoder.py        what an encoder is; numbers.py, categories.py, times.py and texts.py have one family each

Encoders are fitted on training rows alone, so that no value of a validation or test row decides a number that a model reads. Fitted numbers
do not depend on the order of rows, on threads or on the cut into batches: counts and extremes are exact, sums are rounded once
(`ExactSum`). The artifact of the features keeps them in `encoders.json`.

Memory beside DuckDB's share of `memory_limit`: a byte per row of the table, and a slice of 8 MiB of rows with its copies. DuckDB groups and
sorts on disk beyond its share. Disk while building: a copy of the encoded columns of the training rows.
"""
