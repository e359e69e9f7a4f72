"""What work is paid: approvals, bonuses, wages, and the ledger held against the server."""
