"""gputop mcp: read-only answers for assistants, by the Model Context Protocol on standard input and output.

`tools` and what it imports know nothing of the protocol; `server` alone needs the SDK, which is an extra.
"""
