"""The store: outcomes in one SQLite file and arrays beside it, shared by processes, checked on every read."""
