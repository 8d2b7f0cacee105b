"""The Google Ads API on this machine: the real protocol over loopback, made-up accounts, failures on demand."""
