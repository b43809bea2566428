"""Profiles of py-spy and others as stack trees: parsing, ranking, comparison, drawing, reports."""

from gputop.profile.files import is_json, parse
from gputop.profile.flame import flame
from gputop.profile.stacks import Function, Profile, StackNode, diff

__all__ = ["Function", "Profile", "StackNode", "diff", "flame", "is_json", "parse"]
