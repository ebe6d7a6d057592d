"""Running routes over many prompts. The plain forms here are also the oracle of every faster one."""
