"""Which technique for a graph and a machine: what each is expected to take, before anything is built, and what runs turned out to take."""
