"""What the command line does: one module a group of commands, imported only when called."""
