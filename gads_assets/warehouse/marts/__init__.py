"""Tables made of what is published: account-days across queries, and how fresh each query is."""
