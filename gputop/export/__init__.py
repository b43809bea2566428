"""Updates as text for people and programs."""
