"""The models that transformers are compared with in paper 004: MLPs, convolutional networks and the LSTM.

config    their configurations, without PyTorch
images    the networks that read images
lstm      the network that reads tokens
presets   the paper's sizes and smaller ones by name, transformers included
"""
