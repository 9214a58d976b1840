"""The report of a pipeline as one page, and its figures as files: `graphmill report` and `graphmill plot`."""
