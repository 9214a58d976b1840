"""The hotness stage: the nodes that mini-batches ask for most, counted or estimated once and used by every cache (FGNN, section 6).

    order ids[N]              all nodes, hottest first, ties by smaller id: any prefix is the content of a smaller cache
    visits u32[N]             batches that ask for the node, in the counted epochs (policies that count)
    score f64[N]              score that the nodes are ranked by (policies that compute one)
    layer_visits u32[L, N]    batches in which the node is a destination of blocks[l] (`layers` = "visits" or "inputs")
    layer_inputs u64[L, N]    distinct inputs under it there, summed over batches (`layers` = "inputs")
    hit_ratio.png             hit ratio against cache ratio, by policy (policies that count, or with `evaluate_epochs`)

Policies:

    presample   counts of K whole epochs on a random stream of their own, so no batch of theirs is a training batch (PreSC#K)
    bayes       these counts, blended layer by layer with the expectation of a model without noise (kernels/hotness/bayes.py): the best
                ranking at equal cost. The model knows uniform and weighted sampling and walks; for your own sampling function, and
                with fan-outs per relation, `bayes` ranks by the counts alone
    degree      the out-degree (PaGraph)
    pagerank    weighted reverse PageRank
    random      a permutation: the baseline
    optimal     the oracle: the counts of the evaluated training epochs themselves, for comparison only

The stage samples on the CPU, so that every machine makes the same artifact. A training whose GPU draws its batches can count there in
place of it: `presample` in `[train.factored]`.

Numbers: the figure draws the share of requests that a cache holds against its size. A curve close to the diagonal means that no cache will
help. `evaluate_epochs` = E samples the first E epochs of training as well, and measures hit ratios on them. Without it, a policy that
counts estimates those of its own caches: from the rates of `bayes`, or with each trial batch left out of the counts that fill its cache.

Cost: about as long as sampling the trial epochs, one by default. `layer_inputs` walks all edges under every destination, which takes about
as long as sampling them; everything else costs a few percent. Nodes are ranked in ranges of at least 16.8M, whose sums take half of the
free memory; each range takes a pass over the edges per layer. If trial batches are drawn by passes (`topology` of [sampling]), the ranking
reads the edges past the page cache, too, each block once per pass, and its sums take `memory_limit` if that is more: `graphmill inspect`
and the record of the build have passes and bytes. Peak memory with N nodes, L layers, T threads: 4 N for visits, 4 N L for layer visits
(`bayes` has them, too), 8 N L for inputs, 4 N for epochs to evaluate on, 8 N to compare epochs if there are several, N to test the order;
beside it 8 N T for the samplers up to 33.6M nodes and one batch per thread while they count, or 16 min(N, 16.8M) (up to 16 N, by the free
memory) and 100 min(N, 131k) for ranges of nodes while they are ranked. Scratch files, read and written in order: 12 N to sort,
48 N for `bayes`, 8 N L more by weight and 16 N more by walks. `graphmill inspect PIPELINE` prints the memory.
"""
