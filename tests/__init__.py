"""Tests. The modules that hold shared assertions explain a failure as a test module does."""

import pytest

pytest.register_assert_rewrite("tests.endings", "tests.ptys")
