"""Delta tables that hold staged runs, and the pointers that decide which of them readers see."""
