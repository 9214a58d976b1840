"""A Ray cluster, as graphmill uses one: parts of fan-out stages as its tasks, ranks of trainings as its actors.

Ray schedules, restarts what was on a node that died, and knows cores and memory of all nodes. Artifacts, versions, progress and errors are
ours: a part that was built on another node is the same artifact, published into the same store. Nothing of this enters a version.

    address.py   the texts that name a cluster: "auto", "local:N", "HOST:PORT", "ray://HOST:PORT"
    connect.py   connects this process, and checks that every node can do the work
    nodes.py     questions that a node answers: its code, its home
    local.py     nodes on this machine, each with a share of it, which may be kept for the steps of a run
    pool.py      builds parts of a stage: the side of the process that builds the stage
    driver.py    the process that is connected for it; part_task.py the task that builds one part

Only a process that graphmill starts for it connects to Ray: Ray ends its process if the cluster does not answer any more, and the process
behind the command line outlives that with one message. (`dagster-ray` runs whole steps on a cluster; here a step stays where its run is,
and what it builds as parts goes to the nodes, which need neither Dagster nor DuckDB.)
"""
