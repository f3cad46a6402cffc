"""Boolean functions on {0,1}^n: exact and sampled mathematics, without torch.

functions    BooleanFunction, its algebra, and the zoo of named functions
expression   "maj(x1..x5) ^ x6" -> BooleanFunction
sensitivity  profile K_0..K_n, average, max and min sensitivity, influences, blocks and certificates
spectrum     Walsh-Hadamard transform, degree, sparsity, weight by degree, noise stability
estimate     the same from samples at any n, with confidence intervals
testers      property testers, by queries alone
learners     Goldreich-Levin and the low-degree learner

Import from these modules; this one loads nothing.
"""
