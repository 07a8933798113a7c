"""Whether runs may be held against a baseline: set-up, captures, work, devices and clocks."""
