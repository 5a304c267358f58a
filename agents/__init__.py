"""Agents: from an evidence pack to ranked causes and candidate patches."""
