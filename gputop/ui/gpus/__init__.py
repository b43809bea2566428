"""The GPUs at the top of the screen: as cards, rows or cells, each made of declared fields."""
