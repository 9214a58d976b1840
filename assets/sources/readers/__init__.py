"""Readers of files that several sources share: DuckDB, Arrow streams, archives, tables, mapped arrays."""
