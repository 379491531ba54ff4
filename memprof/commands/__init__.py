"""One file a subcommand: load, analyse, print."""
