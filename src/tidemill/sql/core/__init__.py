"""The decisions of SQL, without IO: which queries are allowed, what they read, and which tables exist."""
