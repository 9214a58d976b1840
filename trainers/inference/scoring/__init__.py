"""The score stage: the predictions of a trained model for the nodes of another graph, and how far that graph has drifted from the training.

    predictions.parquet  a row for each predicted node, or of links with `top` for each end; trainers/inference/predict.py has the columns

`[score] model` names the model: yesterday's, of another pipeline, while the graph and the features are those of this one. The artifact is
built from all three, so its version and its inputs name them, and the metadata of the Parquet file do, too. The graph must have the schema
of the training; what does not fit is one message, that of `graphmill predict` (docs/own-data.md#a-trained-model-on-tomorrows-data).

Numbers: the distances from the training. Of the features, the mean and the deviation of each column are compared with those of the graph
that the model was trained on, by node type. They are computed from at most 65,536 nodes of each type, which stand at equal distances. Of
the answers, the shares of the classes are compared with those that the model gave to the test nodes of its training, or to validation or
training nodes without any. The distance is the share of answers that would have to be of another class: half the sum of the differences.
Of several labels it is the largest difference to the share of nodes that have the label. Of numbers it is the distance of the mean from
that of the training, in deviations. Links are not compared. Scores of the nodes whose labels are known are numbers, too.

Checks: both checks of drift are warnings with bounds of `[score]`: the predictions are there in any case, and a person decides whether to
train again. A drifted column is named with both means and deviations.

Cost: one exact inference, within `workspace`, and 131,072 rows of features.
"""
