"""One measurement each, of one model: flips, blowup, Fourier spectrum."""
