"""The web server of Dagster, with a guard before it against what other web pages send."""
