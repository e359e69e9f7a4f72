"""From judgements to a release, and what releases are measured by. No judgement is changed."""
