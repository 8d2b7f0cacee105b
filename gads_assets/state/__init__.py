"""PostgreSQL: the embedded server, the tables and their migrations, partition state, attempts and load records."""
