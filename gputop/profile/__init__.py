"""Profiles of py-spy and others as stack trees: parsing, ranking, comparison, drawing, reports."""

from gputop.profile.files import is_json, parse
from gputop.profile.flame import flame
from gputop.profile.stacks import Function, Node, Profile, diff

__all__ = ["Function", "Node", "Profile", "diff", "flame", "is_json", "parse"]
