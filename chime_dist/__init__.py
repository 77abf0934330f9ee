"""chime_dist: LLM agents that learn from experience, run at cluster scale on one ordered, auditable bank."""

__version__ = "0.1.0"
