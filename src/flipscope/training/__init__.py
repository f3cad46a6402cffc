"""Training: the loop, recipes that define trainings, and trained models as files.

train        flipscope.train: a transformer for a function, with good defaults
presets      default models and settings, without PyTorch
recipe       the definition of a training; the same recipe gives the same model anywhere
recipes      the trainings of the papers as recipes, one module per paper
protocol     how a model is trained: loss, optimiser, learning rate, when to stop
fit          the loop, and evaluate
targets      losses, and the scale of labels
logs         measurements during training
named        measurements and loss terms by name, as in a recipe
measures     the named measurements; terms has the additional loss terms
low_sensitivity  penalty, augmentation and watcher for the sensitivity to tokens
artefact     a trained model as a file, with its recipe and history
checkpoints  the state of a training in one file; memory converts it for the loop

Import from these modules; this one loads nothing.
"""
