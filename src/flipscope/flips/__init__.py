"""Logits of strings and of all their flips, and reliable signs.

engine       the protocol, and the general engine: any module or callable
fast         the fast engine: flipscope's transformer, by its algebra (first_layer, middle_layer, last_layer; deltas if
             few tokens change, mixed_rows, rectified and finish if all do; lanes for narrow models)
signs        signs from logits, checked in float64 near the threshold
inside       modules that round to float32 inside
screen       the heuristic screen, with its audit
"""
