"""One file per measurement of a model, each usable on any `nn.Module`.

sensitivity   sensitivity of strings, and the profile over random or all strings
influence     how far each bit moves the output, or the output of a module inside
blowup        how much the layer norms amplify (Eqs 17, 18)
sharpness     how far outputs and loss move when the parameters move: at random, or in the worst direction
curvature     trace, eigenvalues and density of the Hessian of a loss, Gauss-Newton trace, Fisher-Rao norm
flatness      measures of flatness side by side, and which of them rescaling changes
landscape     slices of the loss around a model, along filter-normalised directions
fourier       spectra of logit and sign, exact and sampled
tokens        how often disturbing one word, patch or embedding changes the answer (Def 4.1 of paper 004)
recognition   answers with a margin (Eq 15, Def 2.8)
perturbation  how far weights can move before answers change
kernels       conjugate and tangent kernels of infinitely wide transformers on the cube, and their eigenvalues
sampled_kernels  the same by sampling: softmax attention, and networks of finite width
prior         which functions random recognisers compute, and how often (Fig 1, Eq 25)
"""
