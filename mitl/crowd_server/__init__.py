"""The crowd server: the requester API over HTTP, worker pages, ledger and invitations, on its own database."""
