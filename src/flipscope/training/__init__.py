"""Training: the loop, recipes that say what is trained and how, and trained models as files.

train        flipscope.train: a transformer for a function, with choices that work
presets      which model and how, where the caller does not say; without PyTorch
recipe       a training written down; the same recipe gives the same model anywhere
recipes      the trainings of the papers as recipes, one module per paper
protocol     how a model is trained: loss, optimiser, learning rate, when to stop
fit          the loop, and evaluate
targets      losses, and the scale of labels
logs         what is measured while a model is trained
named        measurements and loss terms by name, as a recipe has them
measures     the measurements that have a name; terms has the further terms of the loss
low_sensitivity  penalty, augmentation and watcher for the sensitivity to tokens
artefact     a trained model as a file, with its recipe and history
checkpoints  the state of a training in one file; memory is how the loop gives and takes it

Import from these modules; this one loads nothing.
"""
