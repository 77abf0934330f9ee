"""A guided tour of chime_dist, as tests: read the files by number, each docstring is a sentence about the system.

1. ``test_1_episode``: what one episode does, and who is asked what (R1, R2, R8, R18, R20, R38).
2. ``test_2_memory``: what a memory is, how it is found, judged, moved, merged and dropped (R10 to R34).
3. ``test_3_stream``: orderings, epochs, windows and the frozen evaluation (R3 to R7).
4. ``test_4_outcomes``: what counts as success, failure and infra, and over how many it is counted.
5. ``test_5_guarantees``: exactly once, fences, audit, time travel, resume.

``parts`` is the little world that the tour is told in: real engine, real method, real bank; only the model and the
benchmark say what a test wrote down. ``test_table`` keeps every rule and field case tied to a test.
"""
