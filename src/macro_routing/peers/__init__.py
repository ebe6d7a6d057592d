"""The systems that MACRO is compared with, where they need more than a search: the trained routers of Dr.LLM."""
