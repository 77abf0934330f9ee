"""What the machinery costs, beside a floor that was measured in the same run. ``python -m tests.bench --help``."""
