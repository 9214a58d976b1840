"""What things are called: homes, versions and addresses, the manifest, files that a user names, a table of rows."""
