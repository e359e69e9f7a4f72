"""The crowd server: the requester API over HTTP, worker pages, ledger and invitations, on its own database.

Imports run one way: ``protocol``, ``store`` and ``pages``, then ``api`` and ``work``, ``middleware``,
``operator``, and the modules of this folder on top. Nothing here reads the pipeline's database.
"""
