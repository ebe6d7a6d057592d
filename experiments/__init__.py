"""Experiments on searches and the runners behind the result tables; README.md lists them."""
