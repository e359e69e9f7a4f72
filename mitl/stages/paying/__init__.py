"""What work is paid: approvals, bonuses, wages, and the ledger compared with the server. No answer is judged here."""
