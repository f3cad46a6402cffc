"""Helpers for every room: checks, estimates, seeds, limits, files, wording. Imports neither torch nor numba.

errors      InputError: a mistake that the caller can correct, in one sentence
checks      checks of single numbers
arguments   checks of a function's arguments against its annotations
bits        strings and truth tables as arrays
seeds       generators, seeds from numbers, random strings
estimates   Estimate, and intervals that hold at every sample size
resampling  means, slopes and tails from few samples
limits      memory and processors of this machine, and refusals of what exceeds them
progress    the type of progress callbacks
registry    short names for classes and functions that stored files refer to
wording     numbers, times and settings as text, for every page
files       files written whole or not at all
opening     what may be read of the files of others, and how much of it
npz         .npz files, with shapes checked before arrays are unpacked
streams     standard streams that never raise
extra       optional packages
lazy        public names fetched on first use
"""
