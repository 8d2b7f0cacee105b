"""Which queries exist: GAQL, specifications, and the columns the API's own descriptors give them."""
