"""Training: the loop, its sources of batches, and the quick forward that it uses for our transformer.

fit      fit, evaluate, and the random settings of App. F.2
batches  a fixed set shuffled each epoch, or fresh strings
readout  logits of our transformer for first derivatives, with less work in its first and last layer

Import from these modules; this one loads nothing.
"""
