"""Python side of evb, an event builder for data acquisition."""
