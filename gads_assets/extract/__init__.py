"""The google-ads client, its errors translated, and one call split into customer-days."""
