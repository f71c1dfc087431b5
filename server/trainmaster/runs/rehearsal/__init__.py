"""Rehearsals: ordinary runs that try out another one, and are judged by what was recorded."""
