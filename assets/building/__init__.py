"""How stages run: the interface of stages, `materialize`, and fan-out into parts that several processes build."""
