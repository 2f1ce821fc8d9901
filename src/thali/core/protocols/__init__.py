"""Every capability by which priors, observation models and inferences meet: the library's vocabulary.

    logit P(z_nk = 1 | rest)  =  prior log-odds of k  +  evidence for k from row n

A prior speaks log-odds and never sees data; an observation model speaks evidence and never sees the prior; an inference
adds the two. Hyperparameters that are learned are distributions in a spec; `current` is the same spec with their
current values in place (a concrete spec).
"""
