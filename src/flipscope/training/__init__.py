"""Training: the loop, and the quick forward that it uses for our transformer.

train        flipscope.train: a transformer for a function, with choices that work
presets      which model and how, where the caller does not say; without PyTorch
recipe       a training written down; the same recipe gives the same model anywhere
recipes      the trainings of the papers as recipes, one module per paper
fit          fit, evaluate, and the random settings of App. F.2
targets      losses, and the scale of labels
logs         what is measured while a model is trained
named        measurements, loss terms and kinds of data by name, as a recipe has them
measures     the measurements that have a name; terms are further terms of the loss
artefact     a trained model as a file, with its recipe and history
checkpoints  the state of a training in one file; memory is how the loop gives and takes it
readout      logits of our transformer for first derivatives, with less work in its first and last layer

Import from these modules; this one loads nothing.
"""
