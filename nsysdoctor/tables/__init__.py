"""Tables made from an export or from other tables; a parameter of the same name asks for one.

A module put into one of the rooms is found by itself; nothing is registered.
"""
