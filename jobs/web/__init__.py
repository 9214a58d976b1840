"""The web server of Dagster, with a guard before it against requests of other web pages."""
