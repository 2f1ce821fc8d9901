# Aliases: every verb is `python3 dev.py VERB`; hand arguments on with ARGS="...".
PYTHON ?= python3

.PHONY: setup demo test test-all bench lint docs
setup demo test test-all bench lint docs:
	@$(PYTHON) dev.py $@ $(ARGS)
