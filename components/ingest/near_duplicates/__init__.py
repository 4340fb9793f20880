"""The search for near duplicates: small pictures, pairs that look alike, and their clusters."""
