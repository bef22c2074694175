"""`evb lab`: repeats published measurements, and judges the results. Run it as `python3 -m evb.lab`.

A measurement is a declaration (publication_a.py and its neighbours); measurement.py says what it consists of.
"""
