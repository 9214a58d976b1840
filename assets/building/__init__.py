"""How stages run: what a stage is, `materialize`, and fan-out into parts that several processes build."""
