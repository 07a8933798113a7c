"""Why a metric changed: the parts of a step that grew, by name, and what to run next."""
