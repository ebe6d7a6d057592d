"""Compared methods that need more than a search: the trained routers of Dr.LLM, and the tree searches that label them.

Public names are in their modules: ``layer_router.LayerRouters``, ``program_router.ProgramRouters`` and
``per_example_search.PerExampleSearch``.
"""
