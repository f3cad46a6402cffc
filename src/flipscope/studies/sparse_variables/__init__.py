"""Studies of paper 003."""
