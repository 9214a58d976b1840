"""Where everything meets: the command line and the shipped pipelines."""
