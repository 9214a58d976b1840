"""What estimates say, as texts that are committed: a change that is to keep them shows every line that it moves."""
