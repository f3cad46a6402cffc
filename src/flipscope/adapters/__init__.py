"""The adapters for everybody's models: a model comes in once, as a `Subject`, and is settled once per measurement.

subject       a model with its conventions, and `Settled`, the model ready to be measured
encoding      how bits become a model's input
outputs       how a model's outputs become a decision
other_libraries  estimators of scikit-learn and sessions of ONNX Runtime as functions of tensors
batches       strings per call
deterministic checks that an output depends on its own string only
rounding      the number type in which a module really computes
copies        copies in another number type, on another device, or with moved parameters
inputs        data as a model's input: strings of bits, or whatever it is called with
parameters, movable_parameters  choosing and moving parameters
hooks, disturbing, prefix       looking at and changing what happens inside
"""
