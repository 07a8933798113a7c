"""Formats that CI systems read: GitHub annotations, JUnit, SARIF.

Each takes a report or a verdict.
"""
