"""Analysing a project: the tables that a reviewer asks for."""
