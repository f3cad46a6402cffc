"""Every compiled loop, and nothing else; `native.compiled` says how they are compiled and where machine code is kept.

tables, walsh, certificates      of truth tables, for `cube`
simd, powers, span               vectors of 8 or 16 numbers, their powers of two, and the width the processor prefers
lanes, first_lanes               of narrow models: one flip per lane
noisy_marker                     attention at a marker, with dropout, and its derivatives
products                         what several of these share: products of matrices in the cache
random_words                     random words by their number, and coins
small_models, phrases            random recognisers of few bits and what they compute; phrases of Lempel and Ziv
"""
