"""Logits of strings and of all their flips, and reliable signs.

engine       the protocol, and the general engine: any module or callable
fast         the fast engine: flipscope's transformer, by its algebra (first_layer, deltas, last_layer; onednn for wide
             products), in compiled loops if it is narrow (lanes)
choice       whether the fast engine supports a model, and whether its loops are worth compiling
signs        signs from logits, checked in float64 near the threshold
inside       modules that round to float32 inside
screen       the heuristic screen, with its audit
"""
