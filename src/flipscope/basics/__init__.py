"""What every room may use: checks, estimates, seeds, limits, files, words. Neither torch nor numba.

errors      InputError: what the caller can fix, in one sentence
checks      checks of numbers that a caller gives
arguments   arguments held against annotations, at every public function
bits        strings and truth tables as arrays
seeds       generators, seeds from numbers, random strings
estimates   Estimate, and intervals that hold at every sample size
resampling  means, slopes and tails from few samples
limits      what memory and processors there are, and what is beyond any machine
progress    how work tells how far it is
wording     numbers, times and settings in words, for every page
files       files written whole or not at all
streams     output that never ends a run
extra       packages that are optional
lazy        public names fetched on first use
"""
