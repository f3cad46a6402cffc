"""Labelled inputs to train and measure models on, and batches of them.

languages       strings with the labels of a Boolean function, or of fair coins
real_functions  real-valued functions of bits, given as text
batches         a fixed set shuffled each epoch, or fresh strings
strings         StringData: strings of one Boolean function; and Data, the interface of every kind of data
real            RealData: strings with the values of a real-valued function
tables          TableData: a truth table, all of its rows or some
lengths         LengthsData: strings of many lengths, answered at the end, at every position, or on a scratchpad
sparse          SparseData: a gate of a few hidden bits among many
fourier         FourierData: random sums of few parities
steps           StepsData: parity with a chain of thought, or in one pass
modular         addition modulo a number, some pairs to train on
token_sets      sequences whose sparse and frequent tokens both tell the label
images          ImageSet: digits, MNIST, Fashion-MNIST, CIFAR-10, SVHN; image_files reads their formats
photos          PhotoSet: photographs with ImageNet classes, to measure models on
pictures        pictures in files as they are seen: upright, eight bits a channel, nothing transparent
texts           TextSet: pairs of sentences, MRPC, QQP, synthetic ones; text_files reads their layouts
bpe             byte-level BPE of texts: ids and mask
image_data      ImageData: the images of a set in a recipe, with crops and mirror images
text_data       TextData: the pairs of sentences of a set in a recipe, as tokens
kinds           the kinds that a recipe may name

Of these, languages, real_functions, images, photos, texts and bpe do without torch.
"""
