"""Samplers: chains over Z."""
